// Of the kernel that benchmarks hold others against (src/kernels/read.cuh).
#pragma once

#include "types.h"

namespace kvilt::contract {

struct ReadArgs {
  const u32* data = nullptr;  // Aligned to 16.
  i64 words = 0;              // A multiple of 4.
  u32* sink = nullptr;
};

}  // namespace kvilt::contract
