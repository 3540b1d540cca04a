// "cpu/avx512_bf16": the island of intrinsics for AVX-512 with VBMI and BF16. K and V of
// formats that are exact in bf16 (nvfp4 with its scales multiplied in, e4m3, e5m2, bf16).
#pragma once

#include "src/cpu/attention_body.h"

namespace kvilt::cpu::avx512 {

// Null when this build or this machine lacks it.
const AttentionBody* Body();

}  // namespace kvilt::cpu::avx512
