// "cpu/f32": the portable body, through Highway, once per target. Everything in f32.
#pragma once

#include "kvilt/device.h"
#include "src/cpu/attention_body.h"

namespace kvilt::cpu::f32 {

// The body compiled for `target`; null when this build or this machine lacks it. kAvx512Bf16 gives
// what kAvx512 gives.
const AttentionBody* Body(SimdTarget target);

}  // namespace kvilt::cpu::f32
