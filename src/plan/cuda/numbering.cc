#include "src/plan/cuda/numbering.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>

#include "src/plan/cuda/cost.h"
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

// Pieces of the units of runs with a cut.
void CountPieces(const CudaContext& context, const KeyRuns& runs, CudaScratch& scratch) {
  scratch.pieces_begin.assign(runs.runs.size(), -1);
  scratch.unit_pieces.clear();
  int most = 0;
  for (std::size_t l = 0; l < scratch.launch_count; ++l) {
    most = std::max(most, scratch.launches[l].units(context.dims.kv_heads));
  }
  scratch.unit_pieces.reserve(runs.runs.size() * static_cast<std::size_t>(most));
  for (const CutUnit& cut : scratch.cut_units) {
    const auto run = static_cast<std::size_t>(cut.run);
    const LaunchDraft& launch = scratch.launches[static_cast<std::size_t>(scratch.run_launch[run])];
    const auto units = static_cast<std::size_t>(launch.units(context.dims.kv_heads));
    std::int64_t& begin = scratch.pieces_begin[run];
    if (begin < 0) {
      begin = static_cast<std::int64_t>(scratch.unit_pieces.size());
      scratch.unit_pieces.resize(scratch.unit_pieces.size() + units, 1);
    }
    int* pieces = &scratch.unit_pieces[static_cast<std::size_t>(begin)];
    if (cut.unit == kAllUnits) {
      std::fill_n(pieces, units, cut.pieces);
    } else {
      pieces[cut.unit] = cut.pieces;
    }
  }
}

// The splits of one planned block with several runs or a cut one, and where each run's begin.
void NumberBlock(const KeyRuns& runs, std::size_t b, RowBlockShape shape, int count,
                 CudaScratch& scratch) {
  const std::size_t base = scratch.row_block_splits.size();
  scratch.split_begin[b] = static_cast<std::int64_t>(base);
  scratch.row_block_splits.resize(base + static_cast<std::size_t>(count), 0);
  const bool several = runs.block_begin[b + 1] - runs.block_begin[b] > 1;
  for (std::int64_t i = runs.block_begin[b]; i < runs.block_begin[b + 1]; ++i) {
    const KeyRuns::BlockRun& entry = runs.block_runs[static_cast<std::size_t>(i)];
    const auto run = static_cast<std::size_t>(entry.run);
    const LaunchDraft& launch = scratch.launches[static_cast<std::size_t>(scratch.run_launch[run])];
    const std::int64_t pieces = scratch.pieces_begin[run];
    if (several) {
      scratch.first_begin[static_cast<std::size_t>(entry.member)] =
          static_cast<std::int64_t>(scratch.first_split.size());
    }
    const int alike = launch.tile.kv_heads / shape.heads * shape.slices;  // Row blocks of a tile.
    for (int at = 0, head = 0, left = alike; at < count; ++at) {
      const int unit = shape.slices == 1 ? head : head * launch.slices + at % shape.slices;
      int& splits = scratch.row_block_splits[base + static_cast<std::size_t>(at)];
      if (several) scratch.first_split.push_back(splits);
      splits += pieces < 0 ? 1 : scratch.unit_pieces[static_cast<std::size_t>(pieces + unit)];
      if (--left > 0) continue;
      ++head;
      left = alike;
    }
  }
}

// Adds the partials and merges of a planned block's row blocks; false when the partials leave 64
// bits.
bool CountPartials(int group, std::int64_t rows, RowBlockShape shape, std::span<const int> all,
                   std::int64_t& partials, std::int64_t& merged, CudaScratch& scratch) {
  bool countable = true;
  std::int64_t most = scratch.split.max_splits;
  for (std::size_t at = 0; at < all.size(); ++at) {
    const std::int64_t splits = all[at];
    most = std::max(most, splits);
    if (splits == 1) continue;
    const int slice = shape.slices == 1 ? 0 : static_cast<int>(at) % shape.slices;
    const std::int64_t vectors = rows * QueryHeads(group, shape, slice);
    scratch.counts.merges += contract::CeilDiv<std::int64_t>(vectors, kMergeVectors);
    if (splits == 0) continue;
    merged += vectors;
    std::int64_t more = 0;
    countable = countable && Multiply(splits, vectors, more) && Add(partials, more, partials);
  }
  scratch.split.max_splits = most;
  return countable;
}

}  // namespace

std::int64_t NumberSplits(const CudaContext& context, const BlockList& blocks, const KeyRuns& runs,
                          CudaScratch& scratch) {
  CountPieces(context, runs, scratch);
  for (std::size_t c = 0; c < scratch.shapes.size(); ++c) {
    scratch.shapes[c] = ShapeOf(context, scratch, static_cast<int>(c));
    scratch.row_blocks[c] =
        context.dims.kv_heads / scratch.shapes[c].heads * scratch.shapes[c].slices;
  }
  scratch.row_block_begin.resize(blocks.blocks.size() + 1);
  scratch.split_begin.resize(blocks.blocks.size());
  scratch.first_begin.assign(runs.members.size(), -1);
  scratch.first_split.clear();
  scratch.row_block_splits.clear();
  std::int64_t row_blocks = 0;
  scratch.counts = {};
  scratch.split = {};
  std::int64_t vectors = 0;
  std::int64_t merged = 0;
  bool countable = true;
  const int group = context.dims.group();
  for (std::size_t b = 0; b < blocks.blocks.size(); ++b) {
    const PlannedBlock& block = blocks.blocks[b];
    const auto row_class = static_cast<std::size_t>(block.row_class);
    const int count = scratch.row_blocks[row_class];
    scratch.row_block_begin[b] = row_blocks;
    row_blocks += count;
    const std::int64_t first = runs.block_begin[b];
    if (runs.block_begin[b + 1] - first == 1) {
      const int run = runs.block_runs[static_cast<std::size_t>(first)].run;
      if (scratch.pieces_begin[static_cast<std::size_t>(run)] < 0) {
        scratch.split_begin[b] = -1;
        scratch.split.max_splits = std::max<std::int64_t>(scratch.split.max_splits, 1);
        continue;
      }
    }
    const RowBlockShape shape = scratch.shapes[row_class];
    NumberBlock(runs, b, shape, count, scratch);
    const std::span<const int> splits(scratch.row_block_splits.data() + scratch.split_begin[b],
                                      static_cast<std::size_t>(count));
    countable =
        CountPartials(group, block.row_count, shape, splits, vectors, merged, scratch) && countable;
  }
  scratch.split.merged_rows = merged / context.dims.q_heads;
  scratch.row_block_begin[blocks.blocks.size()] = row_blocks;
  // Batches as long as this one may cut other units.
  scratch.row_block_splits.reserve(static_cast<std::size_t>(row_blocks));
  return countable ? vectors : std::numeric_limits<std::int64_t>::max();
}

}  // namespace kvilt::plan::cuda
