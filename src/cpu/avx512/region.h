// The target region of the island: functions between BEGIN and END may use these instructions, so
// the file compiles on any x86-64 machine and only the run-time choice needs them.
#pragma once

#include "hwy/base.h"

#define KVILT_AVX512_BEGIN \
  HWY_PUSH_ATTRIBUTES(     \
      "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16,avx2,avx,fma,f16c,bmi,bmi2,lzcnt")
#define KVILT_AVX512_END HWY_POP_ATTRIBUTES
