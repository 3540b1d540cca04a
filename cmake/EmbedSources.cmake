# cmake -DOUTPUT=x.cc -DSOURCES=a.h|b.cuh -P EmbedSources.cmake
#
# Writes a translation unit that holds each file as text under its base name: the kernels are
# compiled on the user's machine from what is inside the library.
set(text "// Made by cmake/EmbedSources.cmake.
#include \"src/cuda/kernel_sources.h\"

namespace kvilt::cuda {

std::span<const SourceText> KernelSources() {
  static constexpr SourceText kSources[] = {
")
string(REPLACE "|" ";" files "${SOURCES}")
foreach(file IN LISTS files)
  get_filename_component(name "${file}" NAME)
  file(READ "${file}" content)
  string(APPEND text "      {\"${name}\", R\"kvilt~(${content})kvilt~\"},\n")
endforeach()
string(APPEND text "  };
  return kSources;
}

}  // namespace kvilt::cuda
")
file(WRITE "${OUTPUT}" "${text}")
