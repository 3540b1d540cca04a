#include "cli/kv_global.h"

#include <algorithm>
#include <cmath>

namespace kvilt::cli {
namespace {

// The largest magnitude that a multiplier of 1 can store.
double Range(DType dtype) {
  switch (dtype) {
    case DType::kNVFP4:
      return 6.0 * 448.0;
    case DType::kE4M3:
      return 448.0;
    case DType::kE5M2:
      return 57344.0;
    default:
      return 0.0;
  }
}

}  // namespace

float GlobalFor(DType dtype, double amax) {
  if (!IsQuantized(dtype)) return 1.0f;
  const double wanted = amax / Range(dtype);
  if (!(wanted > 0) || !std::isfinite(wanted)) return 1.0f;
  if (dtype != DType::kNVFP4 && wanted <= 1) return 1.0f;
  const auto nearest = static_cast<float>(std::clamp(wanted, std::ldexp(1.0, -20), 64.0));
  return static_cast<double>(nearest) < wanted ? std::nextafter(nearest, 64.0f) : nearest;
}

}  // namespace kvilt::cli
