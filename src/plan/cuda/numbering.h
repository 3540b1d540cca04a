// Which split of its row block each piece is.
#pragma once

#include <cstdint>

#include "src/plan/cuda/cuda_plan.h"

namespace kvilt::plan::cuda {

// Query heads of a row block: those of its KV heads, or one slice of a group, the longest first.
inline int QueryHeads(int group, RowBlockShape shape, int slice) {
  if (shape.slices == 1) return shape.heads * group;
  return group / shape.slices + (slice < group % shape.slices);
}

// Fills what CudaScratch has from `shapes` to `unit_pieces`, counts.merges and split, from
// scratch.cut_units: most blocks have one run and no cut, and cost nothing. Returns the vectors of
// all partials (saturated).
std::int64_t NumberSplits(const CudaContext& context, const BlockList& blocks, const KeyRuns& runs,
                          CudaScratch& scratch);

}  // namespace kvilt::plan::cuda
