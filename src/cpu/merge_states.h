// Merges attention results of the same queries over disjoint keys (the public MergeStates).
#pragma once

#include <span>

#include "src/contract/attention_params.h"
#include "src/cpu/worker_pool.h"

namespace kvilt::cpu {

// One (out, lse) pair; out strides in bytes, lse strides in elements.
struct MergeState {
  contract::u8* out = nullptr;
  contract::Format format = contract::Format::kF32;
  contract::i64 row_stride = 0;
  contract::i64 head_stride = 0;
  float* lse = nullptr;
  contract::i64 lse_row_stride = 0;
  contract::i64 lse_head_stride = 0;
};

struct MergeShape {
  contract::i64 rows = 0;
  contract::i64 heads = 0;
  contract::i64 head_dim = 0;  // Any.
  bool base_two = false;       // Of every lse; else natural.
};

// With m = max lse and w_i = b^(lse_i - m): out = sum w_i out_i / sum w_i, lse = m + log_b(sum
// w_i), states in the order given. The out of a state with lse = -inf is not read; all empty gives
// (0, -inf). A NaN lse makes the row's result NaN. Weights and sums in double, so that no number of
// states drifts; rounded to f32, then to the result's format. Independent of FTZ/DAZ and threads.
// REQUIRES: each tensor of the result is one of the states' or apart from all of them.
void MergeStates(std::span<const MergeState> states, const MergeState& result,
                 const MergeShape& shape, WorkerPool& pool);

}  // namespace kvilt::cpu
