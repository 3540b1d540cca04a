// Which SIMD bodies this build has and this machine can run.
#pragma once

#include <span>

#include "kvilt/device.h"
#include "src/contract/work_item.h"
#include "src/cpu/attention_body.h"

namespace kvilt::cpu {

// Narrowest first; never empty. The same for the life of the process.
std::span<const SimdTarget> SupportedTargets();
bool Supports(SimdTarget target);

// The body that runs `path` on `target`; null when the two do not go together or this machine lacks
// the target. kCpuF32 on kAvx512Bf16 is the AVX-512 body of the portable code.
const AttentionBody* FindBody(contract::PathId path, SimdTarget target);

}  // namespace kvilt::cpu
