#include "src/cuda/nvrtc.h"

#include <algorithm>
#include <filesystem>

#include "src/core/check.h"
#include "src/core/env.h"
#include "src/cuda/library.h"

namespace kvilt::cuda {
namespace {

namespace fs = std::filesystem;

// Newest first. The bare name comes with development packages only.
constexpr const char* kNames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
// Where PyPI's packages put it, below site-packages.
constexpr const char* kPackageFolders[] = {"nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"};

std::vector<std::string> LibrariesIn(const fs::path& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (const char* name : kNames) {
    if (fs::exists(folder / name, error)) found.push_back((folder / name).string());
  }
  return found;
}

std::vector<std::string> LibrariesAt(const std::string& place) {
  std::error_code error;
  if (!fs::is_directory(place, error)) return {place};
  std::vector<std::string> found = LibrariesIn(place);
  for (const char* folder : kPackageFolders) {
    std::ranges::copy(LibrariesIn(fs::path(place) / folder), std::back_inserter(found));
  }
  return found;
}

// /usr/local/cuda first, then the versioned toolkits, newest names first.
std::vector<std::string> LibrariesOfToolkits() {
  std::vector<std::string> toolkits;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator("/usr/local", error)) {
    if (entry.path().filename().string().starts_with("cuda")) toolkits.push_back(entry.path());
  }
  std::ranges::sort(toolkits, [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() < b.size() : a > b;
  });
  std::vector<std::string> found;
  for (const std::string& toolkit : toolkits) {
    for (const char* lib : {"lib64", "lib"}) {
      std::ranges::copy(LibrariesIn(fs::path(toolkit) / lib), std::back_inserter(found));
    }
  }
  return found;
}

std::string MissingText(const std::optional<std::string>& place, const std::string& tried) {
  std::string text = "NVRTC, which compiles kernels, was not found ";
  text += place ? "in KVILT_NVRTC=" + *place : "by the loader or in /usr/local/cuda*";
  if (!tried.empty()) text += " (" + tried + ")";
  return text +
         "; install it (PyPI: nvidia-cuda-nvrtc) and set KVILT_NVRTC to its folder, or set "
         "KVILT_BUNDLE to a file of kernels that `kvilt warm` wrote";
}

}  // namespace

Result<Nvrtc> Nvrtc::Open(const std::string& path) {
  Result<Library> library = Library::Open(path);
  if (!library.ok()) return library.status();
  Nvrtc nvrtc;
  nvrtc.path_ = path;
  const char* missing = nullptr;
  const auto resolve = [&](auto& call, const char* symbol) {
    call = reinterpret_cast<std::remove_reference_t<decltype(call)>>(library->Find(symbol));
    if (call == nullptr && missing == nullptr) missing = symbol;
  };
#define KVILT_RESOLVE(member, symbol, parameters) resolve(nvrtc.calls_.member, #symbol);
  KVILT_NVRTC_CALLS(KVILT_RESOLVE)
#undef KVILT_RESOLVE
  resolve(nvrtc.calls_.GetErrorString, "nvrtcGetErrorString");
  if (missing != nullptr) return Status::Unsupported(path, std::string("has no ") + missing);
  auto& [major, minor] = nvrtc.version_;
  KVILT_RETURN_IF_ERROR(nvrtc.Check(nvrtc.calls_.Version(&major, &minor), "nvrtcVersion"));
  if (major < 12) {
    return Status::Unsupported(
        path, "version " + std::to_string(major) + "; accepted: 12 and later (C++20)");
  }
  return nvrtc;
}

Result<Nvrtc> Nvrtc::FindIn(const std::optional<std::string>& place) {
  std::vector<std::string> candidates;
  if (place) {
    candidates = LibrariesAt(*place);
  } else {
    candidates.assign(std::begin(kNames), std::end(kNames));
    std::ranges::copy(LibrariesOfToolkits(), std::back_inserter(candidates));
  }
  std::string tried;
  for (const std::string& candidate : candidates) {
    Result<Nvrtc> nvrtc = Open(candidate);
    if (nvrtc.ok()) return nvrtc;
    tried += (tried.empty() ? "" : "; ") + nvrtc.status().message();
  }
  return Status::Unsupported("nvrtc", MissingText(place, tried));
}

Result<const Nvrtc*> Nvrtc::Load() {
  static const Result<Nvrtc> nvrtc = FindIn(core::ReadEnv(core::EnvVariable::kNvrtc));
  if (!nvrtc.ok()) return nvrtc.status();
  return &*nvrtc;
}

Status Nvrtc::Check(NvrtcResult result, const char* call) const {
  if (result == kNvrtcSuccess) return Status::Ok();
  const char* text = calls_.GetErrorString(result);
  return Status::Runtime(call, text != nullptr ? text : "error " + std::to_string(result));
}

Status Nvrtc::ReadOutput(NvrtcProgram program, Output& output) const {
  std::size_t bytes = 0;
  KVILT_RETURN_IF_ERROR(Check(calls_.GetProgramLogSize(program, &bytes), "nvrtcGetProgramLogSize"));
  output.log.resize(bytes);
  KVILT_RETURN_IF_ERROR(
      Check(calls_.GetProgramLog(program, output.log.data()), "nvrtcGetProgramLog"));
  while (!output.log.empty() && output.log.back() == '\0') output.log.pop_back();
  if (!output.ok) return Status::Ok();
  KVILT_RETURN_IF_ERROR(Check(calls_.GetCubinSize(program, &bytes), "nvrtcGetCUBINSize"));
  output.cubin.resize(bytes);
  return Check(calls_.GetCubin(program, reinterpret_cast<char*>(output.cubin.data())),
               "nvrtcGetCUBIN");
}

Result<Nvrtc::Output> Nvrtc::Compile(const SourceText& main, std::span<const SourceText> headers,
                                     std::span<const std::string> options) const {
  // C strings: the views of the embedded sources need not end in a zero.
  std::vector<std::string> texts;
  for (const SourceText& header : headers) {
    texts.emplace_back(header.text);
    texts.emplace_back(header.name);
  }
  std::vector<const char*> header_texts;
  std::vector<const char*> header_names;
  for (std::size_t i = 0; i < texts.size(); i += 2) {
    header_texts.push_back(texts[i].c_str());
    header_names.push_back(texts[i + 1].c_str());
  }
  std::vector<const char*> option_texts;
  for (const std::string& option : options) option_texts.push_back(option.c_str());

  NvrtcProgram program = nullptr;
  KVILT_RETURN_IF_ERROR(
      Check(calls_.CreateProgram(&program, std::string(main.text).c_str(),
                                 std::string(main.name).c_str(), static_cast<int>(headers.size()),
                                 header_texts.data(), header_names.data()),
            "nvrtcCreateProgram"));
  const NvrtcResult result =
      calls_.CompileProgram(program, static_cast<int>(option_texts.size()), option_texts.data());
  Output output;
  output.ok = result == kNvrtcSuccess;
  Status status =
      result == kNvrtcCompilationError ? Status::Ok() : Check(result, "nvrtcCompileProgram");
  if (const Status read = ReadOutput(program, output); status.ok()) status = read;
  calls_.DestroyProgram(&program);
  if (!status.ok()) {
    if (output.log.empty()) return status;
    return Status::Runtime(status.field(), status.message() + "\n" + output.log);
  }
  return output;
}

}  // namespace kvilt::cuda
