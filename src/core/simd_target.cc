#include "src/core/simd_target.h"

namespace kvilt {

std::string_view Name(SimdTarget target) {
  switch (target) {
    case SimdTarget::kScalar:
      return "scalar";
    case SimdTarget::kSse4:
      return "sse4";
    case SimdTarget::kNeon:
      return "neon";
    case SimdTarget::kAvx2:
      return "avx2";
    case SimdTarget::kAvx512:
      return "avx512";
    case SimdTarget::kAvx512Bf16:
      return "avx512_bf16";
  }
  return "unknown SIMD target";
}

namespace core {

std::optional<SimdTarget> ParseSimdTarget(std::string_view name) {
  for (const SimdTarget target : kSimdTargets) {
    if (Name(target) == name) return target;
  }
  return std::nullopt;
}

}  // namespace core
}  // namespace kvilt
