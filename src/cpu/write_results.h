// From softmax states to what the caller sees: direct results, partials, and their merge.
#pragma once

#include "src/contract/softmax.h"
#include "src/cpu/item_rows.h"
#include "src/cpu/launch.h"

namespace kvilt::cpu {

// The state of one row and query head, see contract/softmax.h; V's global is applied to the output.
struct RowState {
  const float* output = nullptr;  // [head_dim_vo]
  float values[contract::kStateFloats] = {};

  float reference() const { return values[contract::kStateReference]; }
  float weight() const { return values[contract::kStateWeight]; }
  float sum() const { return values[contract::kStateSum]; }
};
// What a row holds that has seen no key.
RowState EmptyState(const float* output);

// total += state: an output of `dim` and a state of contract::kStateFloats each. Totals are double,
// so that no number of states drifts.
void AddState(const float* state, const float* output, double* total, double* total_output,
              int dim);

// Adds the sink, and to lse the bias that the scores lack (BiasShift); normalises, writes out and
// lse. A state that saw nothing gives 0 and the sink or -inf. `scratch` holds head_dim_vo floats.
void WriteResult(const Launch& launch, const ItemRow& row, i64 head, const RowState& state,
                 float* scratch);

// To the workspace, as `vector` of one split of the block.
void WritePartial(const Launch& launch, const contract::RowBlock& block, i64 split, i64 vector,
                  const RowState& state);

// Stitches the splits of the item's rows, in split order; blocks without splits become empty rows.
// `scratch` holds MergeScratchBytes, aligned to 8.
void RunMerge(const Launch& launch, const contract::MergeItem& merge, std::byte* scratch);
i64 MergeScratchBytes(int head_dim_vo);

}  // namespace kvilt::cpu
