// Which split of its row block each piece is.
#pragma once

#include <cstdint>

#include "src/plan/cuda/cuda_plan.h"

namespace kvilt::plan::cuda {

// Fills shapes, row_block_begin, row_block_splits, unit_begin, piece_count, first_split and
// first_begin from scratch.pieces. Returns the vectors of all partials (saturated).
std::int64_t NumberSplits(const CudaContext& context, const BlockList& blocks, const KeyRuns& runs,
                          CudaScratch& scratch);

}  // namespace kvilt::plan::cuda
