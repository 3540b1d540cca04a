// What a launch of the merge_states kernel gets, by value. Every pointer is one of the device.
#pragma once

#include "attention_params.h"

namespace kvilt::contract {

// Threads of a block of the merge_states kernel: a warp for each row and head; any grid.
inline constexpr i32 kMergeStatesThreads = 128;

// One (out, lse) pair; out strides in bytes, lse strides in elements.
struct StateParams {
  u8* out = nullptr;
  i32 format = 0;  // Format: kF32, kBF16 or kF16.
  i32 pad = 0;
  i64 row_stride = 0;
  i64 head_stride = 0;
  float* lse = nullptr;
  i64 lse_row_stride = 0;
  i64 lse_head_stride = 0;
};

// REQUIRES: each tensor of the result is one of the states' (the same view) or apart from all.
struct MergeStatesArgs {
  const StateParams* states = nullptr;  // [count]
  i64 count = 0;
  StateParams result;
  i64 rows = 0;
  i64 heads = 0;
  i64 head_dim = 0;  // Any.
  i32 base_two = 0;  // Of every lse; else natural.
  i32 pad = 0;
};

}  // namespace kvilt::contract
