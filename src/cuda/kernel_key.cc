#include "src/cuda/kernel_key.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <optional>
#include <set>

namespace kvilt::cuda {
namespace {

// "some_name" -> "SomeName"
std::string FunctionName(std::string_view entry) {
  std::string name;
  bool start = true;
  for (const char c : entry) {
    if (c == '_') {
      start = true;
      continue;
    }
    name += start ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    start = false;
  }
  return name;
}

// The name in `#include "name"`; nothing for another line.
std::optional<std::string_view> IncludedName(std::string_view line) {
  const auto skip = [&](std::string_view prefix) {
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    if (!line.starts_with(prefix)) return false;
    line.remove_prefix(prefix.size());
    return true;
  };
  if (!skip("#") || !skip("include") || !skip("\"")) return std::nullopt;
  return line.substr(0, line.find('"'));
}

std::vector<std::string_view> IncludedNames(std::string_view text) {
  std::vector<std::string_view> names;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (const auto name = IncludedName(text.substr(0, end))) names.push_back(*name);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return names;
}

// What only the emulator's build includes; see src/kernels/simt.cuh.
constexpr std::string_view kHostOnly = "simt_host.h";

}  // namespace

std::string KernelName(const KernelSpec& spec) { return "kvilt_" + spec.entry; }

std::string TileText(const contract::TileShape& tile) {
  using Fields = std::array<contract::i32, sizeof(contract::TileShape) / sizeof(contract::i32)>;
  return fmt::format("kvilt::contract::TileShape{{{}}}",
                     fmt::join(std::bit_cast<Fields>(tile), ","));
}

std::string ArchName(int arch) {
  constexpr int kFirstWithOwnInstructions = 90;
  return fmt::format("sm_{}{}", arch, arch >= kFirstWithOwnInstructions ? "a" : "");
}

std::string KernelText(const KernelSpec& spec) {
  const std::string function = FunctionName(spec.entry);
  const std::string arguments = spec.arguments.empty() ? "" : fmt::format("<{}>", spec.arguments);
  return fmt::format(
      "#include \"{header}\"\n"
      "extern \"C\" __global__ void __launch_bounds__({threads}, {min_blocks})\n"
      "{name}(const __grid_constant__ kvilt::kernels::{function}Args args) {{\n"
      "  kvilt::kernels::{function}{arguments}(args);\n"
      "}}\n"
      "namespace kvilt::kernels {{\n"
      "extern \"C\" __device__ int kvilt_args_bytes = sizeof({function}Args);\n"
      "#ifdef KVILT_SMEM_BYTES\n"
      "extern \"C\" __device__ int kvilt_smem_bytes = KVILT_SMEM_BYTES({smem_arguments});\n"
      "#endif\n"
      "}}\n",
      fmt::arg("header", spec.header), fmt::arg("threads", spec.threads),
      fmt::arg("min_blocks", spec.min_blocks), fmt::arg("name", KernelName(spec)),
      fmt::arg("function", function), fmt::arg("arguments", arguments),
      fmt::arg("smem_arguments", spec.arguments));
}

std::vector<std::string> CompileOptions(const KernelSpec& spec, int arch) {
  std::vector<std::string> options = {
      "--gpu-architecture=" + ArchName(arch), "--std=c++20", "--device-as-default-execution-space",
      "--ptxas-options=-v",  // Registers and spills, into the log.
  };
  if (!spec.contract_fma) options.emplace_back("--fmad=false");
  return options;
}

Result<std::vector<SourceText>> ReachableSources(std::span<const SourceText> sources,
                                                 std::string_view root) {
  std::vector<SourceText> reachable;
  std::set<std::string_view> seen = {root};
  std::vector<std::string_view> open = {root};
  while (!open.empty()) {
    const std::string_view name = open.back();
    open.pop_back();
    const auto found = std::ranges::find(sources, name, &SourceText::name);
    if (found == sources.end()) {
      if (name == kHostOnly) continue;
      return Status::Runtime(std::string(root), "includes " + std::string(name) +
                                                    ", which is not inside this library");
    }
    reachable.push_back(*found);
    for (const std::string_view included : IncludedNames(found->text)) {
      if (seen.insert(included).second) open.push_back(included);
    }
  }
  return reachable;
}

core::Hash128 KernelKey(const KernelSpec& spec, int arch, std::span<const SourceText> reachable) {
  core::Hasher hasher;
  hasher.Add(KernelText(spec));
  for (const std::string& option : CompileOptions(spec, arch)) hasher.Add(option);
  for (const SourceText& source : reachable) hasher.Add(source.name).Add(source.text);
  return hasher.value();
}

}  // namespace kvilt::cuda
