// NVRTC, the run-time compiler, opened at run time; declared here, as the driver is.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kvilt/status.h"

namespace kvilt::cuda {

using NvrtcResult = int;
using NvrtcProgram = struct NvrtcProgramTag*;
inline constexpr NvrtcResult kNvrtcSuccess = 0;
inline constexpr NvrtcResult kNvrtcCompilationError = 6;

// X(member, symbol, parameters)
#define KVILT_NVRTC_CALLS(X)                                                                \
  X(Version, nvrtcVersion, (int*, int*))                                                    \
  X(CreateProgram, nvrtcCreateProgram,                                                      \
    (NvrtcProgram*, const char*, const char*, int, const char* const*, const char* const*)) \
  X(DestroyProgram, nvrtcDestroyProgram, (NvrtcProgram*))                                   \
  X(CompileProgram, nvrtcCompileProgram, (NvrtcProgram, int, const char* const*))           \
  X(GetProgramLogSize, nvrtcGetProgramLogSize, (NvrtcProgram, std::size_t*))                \
  X(GetProgramLog, nvrtcGetProgramLog, (NvrtcProgram, char*))                               \
  X(GetCubinSize, nvrtcGetCUBINSize, (NvrtcProgram, std::size_t*))                          \
  X(GetCubin, nvrtcGetCUBIN, (NvrtcProgram, char*))

struct NvrtcCalls {
// NOLINTNEXTLINE(bugprone-macro-parentheses): names, not values.
#define KVILT_MEMBER(member, symbol, parameters) NvrtcResult(*member) parameters = nullptr;
  KVILT_NVRTC_CALLS(KVILT_MEMBER)
#undef KVILT_MEMBER
  // NOLINTNEXTLINE(readability-identifier-naming): a function's name, as the others have.
  const char* (*GetErrorString)(NvrtcResult) = nullptr;
};

// One text that the compiler sees: a file's name, as #include says it, and what it holds.
struct SourceText {
  std::string_view name;
  std::string_view text;
};

class Nvrtc {
 public:
  // This process's compiler, searched for once per process as FindIn says. Thread-safe.
  static Result<const Nvrtc*> Load();

  // `place`: a library or a folder that holds one, or the site-packages folder of a Python with
  // nvidia-cuda-nvrtc; nothing else is searched. Not given: the loader's places, then
  // /usr/local/cuda*. Errors: kUnsupported, with what was tried and how to get it.
  static Result<Nvrtc> FindIn(const std::optional<std::string>& place);

  struct Output {
    bool ok = false;
    std::vector<std::byte> cubin;  // When ok.
    std::string log;               // The compiler's and the assembler's.
  };
  // A program of the text `main` and the headers it includes. A text that does not compile is an
  // Output. Errors: kRuntime (the compiler itself failed).
  Result<Output> Compile(const SourceText& main, std::span<const SourceText> headers,
                         std::span<const std::string> options) const;

  std::pair<int, int> version() const { return version_; }  // {13, 0}
  const std::string& path() const { return path_; }

 private:
  Nvrtc() = default;
  static Result<Nvrtc> Open(const std::string& path);
  Status Check(NvrtcResult result, const char* call) const;
  Status ReadOutput(NvrtcProgram program, Output& output) const;

  NvrtcCalls calls_;
  std::pair<int, int> version_;
  std::string path_;
};

}  // namespace kvilt::cuda
