#include "src/plan/cuda/numbering.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "src/plan/tensor_check.h"

namespace kvilt::plan::cuda {

namespace {

RowBlockShape ShapeOf(const CudaContext& context, const CudaScratch& scratch, int row_class) {
  RowBlockShape shape;
  shape.heads = context.dims.kv_heads;
  for (std::size_t l = 0; l < scratch.launch_count; ++l) {
    const LaunchDraft& launch = scratch.launches[l];
    if (launch.cascade || launch.row_class == row_class) {
      shape.heads = std::gcd(shape.heads, launch.tile.kv_heads);
    }
    if (!launch.cascade && launch.row_class == row_class) shape.slices = launch.slices;
  }
  return shape;
}

// Query heads of a row block: those of its KV heads, or one slice of a group, the longest of which.
std::int64_t QueryHeads(const CudaContext& context, RowBlockShape shape, int slice) {
  const int group = context.dims.group();
  if (shape.slices == 1) return std::int64_t{shape.heads} * group;
  return group / shape.slices + (slice < group % shape.slices);
}

void CountPieces(const CudaContext& context, const KeyRuns& runs, CudaScratch& scratch) {
  scratch.unit_begin.assign(1, 0);
  for (std::size_t r = 0; r < runs.runs.size(); ++r) {
    const LaunchDraft& launch = scratch.launches[static_cast<std::size_t>(scratch.run_launch[r])];
    scratch.unit_begin.push_back(scratch.unit_begin.back() +
                                 static_cast<std::size_t>(launch.units(context.dims.kv_heads)));
  }
  scratch.piece_count.assign(scratch.unit_begin.back(), 0);
  for (const Piece& piece : scratch.pieces) {
    ++scratch.piece_count[scratch.unit_begin[static_cast<std::size_t>(piece.run)] +
                          static_cast<std::size_t>(piece.unit)];
  }
}

}  // namespace

std::int64_t NumberSplits(const CudaContext& context, const BlockList& blocks, const KeyRuns& runs,
                          CudaScratch& scratch) {
  CountPieces(context, runs, scratch);
  for (int c = 0; c < kRowClasses; ++c) {
    scratch.shapes[static_cast<std::size_t>(c)] = ShapeOf(context, scratch, c);
  }
  const int kv_heads = context.dims.kv_heads;
  scratch.row_block_begin.assign(1, 0);
  scratch.first_begin.assign(runs.members.size(), 0);
  scratch.first_split.clear();
  scratch.row_block_splits.clear();
  std::int64_t vectors = 0;
  bool countable = true;
  for (std::size_t b = 0; b < blocks.blocks.size(); ++b) {
    const RowBlockShape shape =
        scratch.shapes[static_cast<std::size_t>(blocks.blocks[b].row_class)];
    const int count = kv_heads / shape.heads * shape.slices;
    const std::size_t base = scratch.row_block_splits.size();
    scratch.row_block_splits.resize(base + static_cast<std::size_t>(count), 0);
    for (std::int64_t i = runs.block_begin[b]; i < runs.block_begin[b + 1]; ++i) {
      const KeyRuns::BlockRun& entry = runs.block_runs[static_cast<std::size_t>(i)];
      const auto run = static_cast<std::size_t>(entry.run);
      const LaunchDraft& launch =
          scratch.launches[static_cast<std::size_t>(scratch.run_launch[run])];
      scratch.first_begin[static_cast<std::size_t>(entry.member)] =
          static_cast<std::int64_t>(scratch.first_split.size());
      for (int at = 0; at < count; ++at) {
        const int head = at / shape.slices * shape.heads;
        const int unit = head / launch.tile.kv_heads * launch.slices +
                         (launch.slices > 1 ? at % shape.slices : 0);
        int& splits = scratch.row_block_splits[base + static_cast<std::size_t>(at)];
        scratch.first_split.push_back(splits);
        splits += scratch.piece_count[scratch.unit_begin[run] + static_cast<std::size_t>(unit)];
      }
    }
    for (int at = 0; at < count; ++at) {
      const std::int64_t splits = scratch.row_block_splits[base + static_cast<std::size_t>(at)];
      std::int64_t more = 0;
      if (splits <= 1) continue;
      countable = countable &&
                  Multiply(splits * QueryHeads(context, shape, at % shape.slices),
                           blocks.blocks[b].row_count, more) &&
                  Add(vectors, more, vectors);
    }
    scratch.row_block_begin.push_back(static_cast<std::int64_t>(scratch.row_block_splits.size()));
  }
  return countable ? vectors : std::numeric_limits<std::int64_t>::max();
}

}  // namespace kvilt::plan::cuda
