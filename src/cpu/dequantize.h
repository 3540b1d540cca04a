// The reader of whole caches: tokens to dense rows of f32, bf16 or f16.
#pragma once

#include "src/contract/append_params.h"
#include "src/cpu/worker_pool.h"

namespace kvilt::cpu {

// rows[t] = RNE_out((code * scale) * global) of slot t, each product rounded to f32 (SEMANTICS
// section 1). A side whose rows have null data is left out. Independent of FTZ/DAZ and threads.
// REQUIRES: params checked (src/api/dequantize.cc), the rows apart from the cache.
void Dequantize(const contract::DequantizeParams& params, WorkerPool& pool);

}  // namespace kvilt::cpu
