// Which split of its row block each piece is.
#pragma once

#include <cstdint>

#include "src/plan/cuda/cuda_plan.h"

namespace kvilt::plan::cuda {

// Row blocks of the plan data: a planned block's rows for `heads` KV heads, or for one slice of the
// group of one. All pieces of the block's runs cover whole row blocks.
struct RowBlockShape {
  int heads = 1;  // KV heads of a row block.
  int slices = 1;
};
RowBlockShape ShapeOf(const CudaContext& context, const CudaScratch& scratch, int row_class);

// Fills row_block_begin, row_block_splits, unit_begin, piece_count, first_split and first_begin
// from scratch.pieces. Returns the vectors of all partials (saturated).
std::int64_t NumberSplits(const CudaContext& context, const BlockList& blocks, const KeyRuns& runs,
                          CudaScratch& scratch);

}  // namespace kvilt::plan::cuda
