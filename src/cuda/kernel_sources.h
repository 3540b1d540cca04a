// The text of src/kernels/*.cuh and src/contract/*.h, inside the library.
#pragma once

#include <span>

#include "src/cuda/nvrtc.h"

namespace kvilt::cuda {

// By base name, which is how kernels include each other. Made by cmake/EmbedSources.cmake.
std::span<const SourceText> KernelSources();

}  // namespace kvilt::cuda
