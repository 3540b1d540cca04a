// Cuts the work of each launch into pieces and deals them to the blocks of its persistent grid.
//
// Two ways, the cheaper by the model wins:
//   ranges    all work in one line, cut into equal ranges, one per block: perfect balance, and at
//             most one cut per block, each of which costs a partial and its merge
//   whole     runs stay whole, longest first to the block that is free first: no partials
// kFixed cuts where it must and deals like "whole"; kOff is "whole".
#include "src/plan/cuda/cost.h"
#include "src/plan/cuda/cuda_plan.h"
#include "src/plan/cuda/launch_partition.h"
#include "src/plan/cuda/numbering.h"
#include "src/plan/longest_splits.h"
#include "src/plan/split_kv.h"

namespace kvilt::plan::cuda {
namespace {

// One launch without regard to the workspace.
void PartitionFreely(const CudaContext& context, const KeyRuns& runs, LaunchDraft& launch,
                     CudaScratch& scratch) {
  LaunchPartition partition(context, runs, launch, scratch);
  if (context.options.split == SplitMode::kFixed) {
    partition.Fixed();
  } else if (context.options.split == SplitMode::kOff) {
    partition.TakeWhole(partition.TryWhole());
  } else {
    const double ranges = partition.Ranges() + launch.merge_us * context.spec.clock_ghz * 1e3;
    // Dealing is dear for the host, so only where it may save 3 %.
    if (partition.WholeBound() < 0.97 * ranges) {
      const double whole = partition.TryWhole();
      if (whole <= ranges) partition.TakeWhole(whole);
    }
  }
  partition.Finish();
}

void PartitionEvenly(const CudaContext& context, const KeyRuns& runs, LaunchDraft& launch,
                     CudaScratch& scratch, double factor) {
  LaunchPartition partition(context, runs, launch, scratch);
  if (factor > 0) {
    partition.Even(partition.ideal() * factor);
  } else {
    partition.TakeWhole(partition.TryWhole());
  }
  partition.Finish();
}

// Vectors that rows of several runs need although nothing is cut.
std::int64_t UncutVectors(const CudaContext& context, const BlockList& blocks,
                          const KeyRuns& runs) {
  std::int64_t vectors = 0;
  for (std::size_t b = 0; b < blocks.blocks.size(); ++b) {
    const std::int64_t count = runs.block_begin[b + 1] - runs.block_begin[b];
    if (count > 1) vectors += count * blocks.blocks[b].row_count * context.dims.q_heads;
  }
  return vectors;
}

// Every launch by `cut`; whether its partials fit the workspace, and the bound of any workspace.
template <class Cut>
bool PartitionAll(const CudaContext& context, const BlockList& blocks, const KeyRuns& runs,
                  CudaScratch& scratch, Cut&& cut) {
  scratch.piece_begin.assign(1, 0);
  scratch.cut_units.clear();
  // Ranges cut a unit for each block at most; updates may cut more of one launch, less of another.
  int grids = 0;
  for (std::size_t l = 0; l < scratch.launch_count; ++l) {
    grids += context.spec.slots * scratch.launches[l].tile.blocks_per_sm;
  }
  scratch.cut_units.reserve(static_cast<std::size_t>(grids));
  for (std::size_t l = 0; l < scratch.launch_count; ++l) cut(scratch.launches[l]);
  scratch.vectors = NumberSplits(context, blocks, runs, scratch);
  if (context.options.split == SplitMode::kFixed) return true;  // The caller names the bytes.
  const std::int64_t most =
      context.spec.slots * kPartialsPerSm + UncutVectors(context, blocks, runs);
  if (context.options.split == SplitMode::kAuto && scratch.vectors > most) return false;
  std::int64_t bytes = 0;
  const std::int64_t limit = context.options.workspace_limit_bytes;
  return VectorBytes(scratch.vectors, context.dims, bytes) && (limit < 0 || bytes <= limit);
}

}  // namespace

bool Partition(const CudaContext& context, const BlockList& blocks, const KeyRuns& runs,
               CudaScratch& scratch) {
  for (std::size_t l = 0; l < scratch.launch_count; ++l) scratch.launches[l].runs.clear();
  for (std::size_t r = 0; r < runs.runs.size(); ++r) {
    scratch.launches[static_cast<std::size_t>(scratch.run_launch[r])].runs.push_back(
        static_cast<int>(r));
  }
  if (PartitionAll(context, blocks, runs, scratch,
                   [&](LaunchDraft& launch) { PartitionFreely(context, runs, launch, scratch); })) {
    return true;
  }
  if (context.options.split != SplitMode::kAuto) return false;
  return FitLongerSplits([&](double factor) {
    return PartitionAll(context, blocks, runs, scratch, [&](LaunchDraft& launch) {
      PartitionEvenly(context, runs, launch, scratch, factor);
    });
  });
}

}  // namespace kvilt::plan::cuda
