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
  int operand_bytes;
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

constexpr Candidate kCandidates[] = {
    {contract::PathId::kCpuAvx512Bf16, "cpu/avx512_bf16", DeviceKind::kCpu, 2, RefuseIsland},
    {contract::PathId::kCpuF32, "cpu/f32", DeviceKind::kCpu, 4, RefuseNothing},
};

std::string CandidateNames(DeviceKind kind) {
  std::string names;
  for (const Candidate& candidate : kCandidates) {
    if (candidate.kind != kind) continue;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", candidate.name);
  }
  return names;
}

}  // namespace

Result<PathChoice> ChoosePath(const AttentionRequest& request, const DeviceSpec& spec,
                              const PlanOptions& options) {
  PathChoice choice;
  const Candidate* taken = nullptr;
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
  KVILT_CHECK(taken != nullptr);
  choice.id = taken->id;
  choice.name = taken->name;
  choice.operand_bytes = taken->operand_bytes;
  return choice;
}

Status CheckSpec(const DeviceSpec& spec) {
  constexpr int kMaxSlots = 1 << 16;
  if (spec.kind == DeviceKind::kCuda) {
    return Status::Unsupported("spec.kind", fmt::format("cuda ({}): this build has no CUDA paths, "
                                                        "expected a cpu spec",
                                                        spec.name));
  }
  if (spec.kind != DeviceKind::kCpu) {
    return Status::Invalid("spec.kind",
                           fmt::format("{}, expected kCpu or kCuda", static_cast<int>(spec.kind)));
  }
  if (spec.slots < 1 || spec.slots > kMaxSlots) {
    return Status::Invalid("spec.slots", fmt::format("{}, expected 1..{}", spec.slots, kMaxSlots));
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
