// Limits of CUDA archs and, for each, of one product.
//
// Sources, read on 2026-11-30:
// [guide]  CUDA Programming Guide 13, "Compute Capabilities": shared memory, registers, threads and
//          blocks of an SM; 1 KB of each resident block is reserved from compute capability 8.0 on.
// [occ]    cuda_occupancy.h of CUDA 13.0, for the same numbers by minor version.
// [ptx]    PTX ISA 9.0: cp.async sm_80; cvt from e4m3x2 sm_89; cp.async.bulk and griddepcontrol
//          sm_90; wgmma sm_90a only; setmaxnreg sm_90a, sm_100a and its families, sm_120a and its
//          family; cvt from e2m1x2 sm_100a and sm_120a and their families.
// Products: SMs, L2, bandwidth and boost clock from NVIDIA's white papers and data sheets, named in
// each row; MMA rates are their dense 16-bit TFLOPS with f32 sums, divided by SMs and clock.
#include "src/plan/device_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "src/core/check.h"

namespace kvilt::plan {
namespace {

constexpr std::int64_t kKiB = 1024;

struct Row {
  int arch;
  const char* product;
  int sms;
  int smem_per_sm_kib;  // [guide]; one block may have 1 KB less.
  int threads_per_sm;   // [guide]
  int blocks_per_sm;    // [guide], [occ]
  double l2_mib;
  double gb_per_s;
  double clock_ghz;
  double mma;  // FLOP per clock and SM.
};

constexpr Row kRows[] = {
    // A100 80GB SXM data sheet; 312 TFLOPS.
    {80, "A100 80GB SXM", 108, 164, 2048, 32, 40, 2039, 1.41, 2048},
    // GA102 white paper, RTX 3090; 71 TFLOPS with f32 sums.
    {86, "RTX 3090", 82, 100, 1536, 16, 6, 936, 1.695, 512},
    // Jetson AGX Orin data sheet; 85 dense INT8 TOPS, a half of that for 16 bit.
    {87, "Jetson AGX Orin 64GB", 16, 164, 1536, 16, 4, 204.8, 1.3, 2048},
    // Ada white paper, RTX 4090; 165 TFLOPS with f32 sums.
    {89, "RTX 4090", 128, 100, 1536, 24, 72, 1008, 2.52, 512},
    // H200 SXM data sheet (4.8 TB/s, 989 TFLOPS through wgmma); L2 and the 2/3 of that rate which
    // mma.sync reaches were read on the card.
    {90, "H200 SXM", 132, 228, 2048, 32, 60, 4800, 1.83, 2730},
    // B200 data sheet (8 TB/s); L2 by the driver; the rate is that of mma.sync, which has half of
    // Hopper's peak: the 2.25 PFLOPS need tcgen05, which no kernel here uses.
    {100, "B200", 148, 228, 2048, 32, 126, 8000, 1.85, 2048},
    // "Inside NVIDIA Blackwell Ultra" (technical blog): 160 SMs, 8 TB/s; the rest as B200.
    {103, "B300", 160, 228, 2048, 32, 126, 8000, 1.92, 2048},
    // Jetson Thor data sheet, T5000: 2560 cores, 273 GB/s; the rate as B200.
    {110, "Jetson AGX Thor T5000", 20, 228, 1536, 24, 32, 273, 1.575, 2048},
    // RTX Blackwell white paper, RTX 5090; 209.5 TFLOPS with f32 sums.
    {120, "RTX 5090", 170, 100, 1536, 24, 96, 1792, 2.407, 512},
    // DGX Spark data sheet, GB10: 6144 cores, 273 GB/s; the rate as RTX 5090.
    {121, "GB10", 48, 100, 1536, 24, 24, 273, 2.418, 512},
};

constexpr auto kArchs = [] {
  std::array<int, std::size(kRows)> archs{};
  for (std::size_t i = 0; i < archs.size(); ++i) archs[i] = kRows[i].arch;
  return archs;
}();

// [ptx], by arch family. Features arrive with an arch and stay, but for wgmma.
CudaFeatures FeaturesOf(int arch) {
  CudaFeatures features;
  features.async_copy = arch >= 80;
  features.native_e4m3 = arch >= 89;
  features.bulk_copy = arch >= 90;
  features.dependent_launch = arch >= 90;
  features.register_split = arch >= 90;
  features.wgmma = arch >= 90 && arch < 100;
  features.native_e2m1 = arch >= 100;
  return features;
}

std::string ArchNames() {
  std::string names;
  for (const int arch : kArchs) names += fmt::format("{}sm_{}", names.empty() ? "" : ", ", arch);
  return names;
}

std::optional<int> ParseNumber(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

}  // namespace

std::span<const int> CudaArchs() { return kArchs; }

DeviceSpec CudaSpec(int arch, int sms) {
  const Row* row = std::find_if(std::begin(kRows), std::end(kRows),
                                [&](const Row& candidate) { return candidate.arch == arch; });
  KVILT_CHECK(row != std::end(kRows));
  DeviceSpec spec;
  spec.name = sms == 0 ? fmt::format("sm_{}", arch) : fmt::format("sm_{}:{}", arch, sms);
  spec.kind = DeviceKind::kCuda;
  spec.slots = sms == 0 ? row->sms : sms;
  spec.arch = arch;
  spec.l2_bytes = static_cast<std::int64_t>(row->l2_mib * 1024) * kKiB;
  spec.read_gb_per_s = row->gb_per_s;
  spec.smem_per_sm_bytes = row->smem_per_sm_kib * kKiB;
  spec.smem_reserved_bytes = kKiB;
  spec.smem_per_block_bytes = spec.smem_per_sm_bytes - spec.smem_reserved_bytes;
  spec.registers_per_sm = 64 * kKiB;
  spec.threads_per_sm = row->threads_per_sm;
  spec.blocks_per_sm = row->blocks_per_sm;
  spec.clock_ghz = row->clock_ghz;
  spec.mma_flops_per_clock = row->mma;
  spec.features = FeaturesOf(arch);
  // Dense 16-bit peak of the H200: 989 TFLOPS / 132 / 1.83 GHz.
  spec.wgmma_flops_per_clock = spec.features.wgmma ? 4096 : 0;
  return spec;
}

Result<DeviceSpec> CudaSpecFor(std::string_view name) {
  constexpr std::string_view kPrefix = "sm_";
  const std::size_t colon = name.find(':');
  const std::string_view arch_text = name.substr(0, colon);
  const std::optional<int> arch =
      arch_text.starts_with(kPrefix) ? ParseNumber(arch_text.substr(kPrefix.size())) : std::nullopt;
  if (!arch) {
    return Status::Invalid("name", fmt::format("\"{}\" is not a CUDA arch; accepted: {}, each with "
                                               ":<SMs> or without",
                                               name, ArchNames()));
  }
  if (std::find(kArchs.begin(), kArchs.end(), *arch) == kArchs.end()) {
    return Status::Unsupported(
        "name", fmt::format("\"{}\": {}; accepted: {}", name,
                            *arch < kArchs.front() ? "kernels need sm_80 (cp.async) or later"
                                                   : "not in the table of devices",
                            ArchNames()));
  }
  if (colon == std::string_view::npos) return CudaSpec(*arch);
  const std::optional<int> sms = ParseNumber(name.substr(colon + 1));
  if (!sms || *sms < 1 || *sms > 4096) {
    return Status::Invalid("name", fmt::format("\"{}\": \"{}\" SMs; accepted: 1 to 4096", name,
                                               name.substr(colon + 1)));
  }
  return CudaSpec(*arch, *sms);
}

}  // namespace kvilt::plan
