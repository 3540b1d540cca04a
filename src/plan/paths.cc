#include "src/plan/paths.h"

#include <fmt/format.h>

#include <optional>
#include <span>

#include "src/core/check.h"

namespace kvilt::plan {
namespace {

using Reason = std::optional<std::string>;  // Empty: the path can do it.

// A path: what it is, and what it cannot do. Kept in order of preference for each device kind.
struct Candidate {
  contract::PathId id;
  std::string_view name;
  DeviceKind kind;
  Reason (*refusal)(const AttentionRequest&, const DeviceSpec&, const PlanOptions&);
};

bool ExactInBf16(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kE4M3 || dtype == DType::kE5M2 ||
         dtype == DType::kNVFP4;
}

Reason RefuseIsland(const AttentionRequest& request, const DeviceSpec& spec,
                    const PlanOptions& options) {
  if (spec.simd != SimdTarget::kAvx512Bf16) {
    return fmt::format("needs SIMD target {}, the device has {}", Name(SimdTarget::kAvx512Bf16),
                       Name(spec.simd));
  }
  if (options.accuracy == Accuracy::kF32) {
    return std::string("its bf16 operands do not reach accuracy f32");
  }
  if (request.rope) return std::string("does not rotate: the request has rope");
  for (std::size_t i = 0; i < request.segments.size(); ++i) {
    const Segment& segment = request.segments[i];
    for (const auto& [side, dtype] :
         {std::pair{"k", segment.k().data.dtype}, std::pair{"v", segment.v().data.dtype}}) {
      if (!ExactInBf16(dtype)) {
        return fmt::format("segments[{}].{} is {}, which bf16 operands do not hold exactly", i,
                           side, Name(dtype));
      }
    }
  }
  return {};
}

Reason RefuseNothing(const AttentionRequest&, const DeviceSpec&, const PlanOptions&) { return {}; }

// On a GPU the tile of each launch decides between the kernels; a path that is asked for limits
// that choice (cuda/launches.cc), so here it is only known or not.
Reason RefuseOtherAccuracy(const AttentionRequest&, const DeviceSpec&, const PlanOptions& options) {
  if (options.accuracy == Accuracy::kNormal) return {};
  return fmt::format("has accuracy normal only, asked is {}", Name(options.accuracy));
}

constexpr Candidate kCandidates[] = {
    {contract::PathId::kCpuAvx512Bf16, "cpu/avx512_bf16", DeviceKind::kCpu, RefuseIsland},
    {contract::PathId::kCpuF32, "cpu/f32", DeviceKind::kCpu, RefuseNothing},
    {contract::PathId::kCuda, "cuda/decode", DeviceKind::kCuda, RefuseOtherAccuracy},
    {contract::PathId::kCuda, "cuda/prefill", DeviceKind::kCuda, RefuseOtherAccuracy},
    {contract::PathId::kCuda, "cuda/prefill_wgmma", DeviceKind::kCuda, RefuseOtherAccuracy},
};

std::string CandidateNames(DeviceKind kind) {
  std::string names;
  for (const Candidate& candidate : kCandidates) {
    if (candidate.kind != kind) continue;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", candidate.name);
  }
  return names;
}

// A spec by hand must have all that the model divides by.
Status CheckCudaSpec(const DeviceSpec& spec) {
  const std::pair<const char*, double> fields[] = {
      {"smem_per_block_bytes", static_cast<double>(spec.smem_per_block_bytes)},
      {"smem_per_sm_bytes", static_cast<double>(spec.smem_per_sm_bytes)},
      {"registers_per_sm", static_cast<double>(spec.registers_per_sm)},
      {"threads_per_sm", spec.threads_per_sm},
      {"blocks_per_sm", spec.blocks_per_sm},
      {"read_gb_per_s", spec.read_gb_per_s},
      {"clock_ghz", spec.clock_ghz},
      {"mma_flops_per_clock", spec.mma_flops_per_clock},
  };
  for (const auto& [name, value] : fields) {
    if (value > 0 && value < 1e15) continue;
    return Status::Invalid(fmt::format("spec.{}", name),
                           fmt::format("{}, expected > 0 for a CUDA device", value));
  }
  if (spec.features.wgmma && !(spec.wgmma_flops_per_clock > 0)) {
    return Status::Invalid("spec.wgmma_flops_per_clock", "0, expected > 0: the spec has wgmma");
  }
  if (!spec.features.async_copy) {
    return Status::Unsupported("spec.features.async_copy",
                               fmt::format("false ({}): kernels need cp.async", spec.name));
  }
  return {};
}

}  // namespace

int OperandBytes(contract::PathId path) { return path == contract::PathId::kCpuAvx512Bf16 ? 2 : 4; }

Result<PathChoice> ChoosePath(const AttentionRequest& request, const DeviceSpec& spec,
                              const PlanOptions& options) {
  if (spec.kind == DeviceKind::kCpu && !options.tile.empty()) {
    return Status::Unsupported("options.tile",
                               fmt::format("\"{}\", expected none: the CPU has one tile for each "
                                           "path",
                                           options.tile));
  }
  PathChoice choice;
  const Candidate* taken = nullptr;
  Reason last_reason;
  bool known = options.path.empty();
  for (const Candidate& candidate : kCandidates) {
    if (candidate.kind != spec.kind) continue;
    Reason reason = candidate.refusal(request, spec, options);
    if (options.path == candidate.name) {
      known = true;
      if (reason) return Status::Unsupported("options.path", options.path + ": " + *reason);
    } else if (!options.path.empty() && !reason) {
      reason = fmt::format("options.path asks for {}", options.path);
    }
    if (reason) last_reason = reason;
    if (!reason && taken != nullptr && spec.kind == DeviceKind::kCuda) continue;
    if (!reason && taken != nullptr) {
      reason = fmt::format("{} can do it and is preferred", taken->name);
    }
    if (reason) {
      choice.refused.push_back({std::string(candidate.name), *std::move(reason)});
    } else {
      taken = &candidate;
    }
  }
  if (!known) {
    return Status::Invalid("options.path",
                           fmt::format("\"{}\", expected {}, or \"\" to let the plan choose",
                                       options.path, CandidateNames(spec.kind)));
  }
  if (taken == nullptr) {
    return Status::Unsupported("options.accuracy",
                               fmt::format("every path of {} {}", spec.name, *last_reason));
  }
  choice.id = taken->id;
  choice.name = taken->name;
  return choice;
}

Status CheckSpec(const DeviceSpec& spec) {
  constexpr int kMaxSlots = 1 << 16;
  if (spec.slots < 1 || spec.slots > kMaxSlots) {
    return Status::Invalid("spec.slots", fmt::format("{}, expected 1..{}", spec.slots, kMaxSlots));
  }
  if (spec.kind == DeviceKind::kCuda) return CheckCudaSpec(spec);
  if (spec.kind != DeviceKind::kCpu) {
    return Status::Invalid("spec.kind",
                           fmt::format("{}, expected kCpu or kCuda", static_cast<int>(spec.kind)));
  }
  if (spec.simd > SimdTarget::kAvx512Bf16) {
    return Status::Invalid("spec.simd",
                           fmt::format("{}, expected a SIMD target", static_cast<int>(spec.simd)));
  }
  if (spec.l2_bytes < 0) {
    return Status::Invalid("spec.l2_bytes",
                           fmt::format("{}, expected >= 0 (0 = not known)", spec.l2_bytes));
  }
  return {};
}

DeviceSpec CpuSpec(SimdTarget target, int slots, std::int64_t l2_bytes) {
  DeviceSpec spec;
  spec.name = fmt::format("cpu:{}", Name(target));
  spec.kind = DeviceKind::kCpu;
  spec.slots = slots;
  spec.simd = target;
  spec.l2_bytes = l2_bytes;
  return spec;
}

}  // namespace kvilt::plan
