#include "src/cpu/simd_targets.h"

#include <array>
#include <cstddef>

#include "src/cpu/avx512/body.h"
#include "src/cpu/f32/body.h"

namespace kvilt::cpu {
namespace {

constexpr std::array kAll = {SimdTarget::kScalar, SimdTarget::kSse4,   SimdTarget::kNeon,
                             SimdTarget::kAvx2,   SimdTarget::kAvx512, SimdTarget::kAvx512Bf16};

struct TargetList {
  std::array<SimdTarget, kAll.size()> targets{};
  std::size_t count = 0;
};

TargetList Probe() {
  TargetList list;
  for (const SimdTarget target : kAll) {
    const AttentionBody* body =
        target == SimdTarget::kAvx512Bf16 ? avx512::Body() : f32::Body(target);
    if (body != nullptr) list.targets[list.count++] = target;
  }
  return list;
}

}  // namespace

std::span<const SimdTarget> SupportedTargets() {
  static const TargetList list = Probe();
  return {list.targets.data(), list.count};
}

bool Supports(SimdTarget target) {
  for (const SimdTarget supported : SupportedTargets()) {
    if (supported == target) return true;
  }
  return false;
}

const AttentionBody* FindBody(contract::PathId path, SimdTarget target) {
  if (!Supports(target)) return nullptr;
  if (path == contract::PathId::kCpuF32) return f32::Body(target);
  return target == SimdTarget::kAvx512Bf16 ? avx512::Body() : nullptr;
}

}  // namespace kvilt::cpu
