// From softmax states to what the caller sees: direct results, partials, and their merge.
#pragma once

#include "src/cpu/launch.h"

namespace kvilt::cpu {

// The state of one row and query head: unnormalised output (V global applied), reference, sum.
struct RowState {
  const float* output = nullptr;  // [head_dim_vo]
  float reference = 0.0f;
  float sum = 0.0f;
};

// Adds the sink, normalises, writes out and lse. A state that saw nothing gives 0 and the sink or
// -inf. `scratch` holds head_dim_vo floats.
void WriteResult(const Launch& launch, i64 q_row, i64 head, const RowState& state, float* scratch);

// To the workspace.
void WritePartial(const Launch& launch, i64 partial_row, i64 head, const RowState& state);

// Stitches the splits of the item's rows, in split order; blocks without splits become empty rows.
// `scratch` holds 2 * head_dim_vo floats.
void RunMerge(const Launch& launch, const contract::MergeItem& merge, float* scratch);

}  // namespace kvilt::cpu
