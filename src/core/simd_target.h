// Names of SIMD targets; Name(SimdTarget) is public.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "kvilt/device.h"

namespace kvilt::core {

// Every target, narrowest first.
inline constexpr std::array kSimdTargets = {SimdTarget::kScalar, SimdTarget::kSse4,
                                            SimdTarget::kNeon,   SimdTarget::kAvx2,
                                            SimdTarget::kAvx512, SimdTarget::kAvx512Bf16};

// The inverse of Name(SimdTarget); empty for anything else.
std::optional<SimdTarget> ParseSimdTarget(std::string_view name);

}  // namespace kvilt::core
