#include "src/plan/split_kv.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/contract/softmax.h"
#include "src/contract/types.h"
#include "src/contract/work_item.h"
#include "src/plan/cost_model.h"
#include "src/plan/longest_splits.h"
#include "src/plan/tensor_check.h"

namespace kvilt::plan {
namespace {

using contract::CeilDiv;
using contract::RoundDown;

// Larger than any count that matters, small enough to convert.
std::int64_t CeilOf(double value) {
  return static_cast<std::int64_t>(std::ceil(std::min(value, 1e15)));
}

// Items that a run may be cut into before each becomes too small to hand out.
std::int64_t WorthwhileItems(const KeyRun& run) {
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(run.cost / kMinItemCost));
}

std::int64_t FixedSplits(const SplitContext& context, const KeyRun& run) {
  const std::int64_t n = context.options.fixed_split_rows;
  const auto segments = static_cast<std::int64_t>(context.geometry.segments.size());
  // Cuts at multiples of n strictly inside, plus borders strictly inside that are no multiples.
  std::int64_t splits = CeilDiv<std::int64_t>(run.keys.end, n) - run.keys.begin / n;
  std::int64_t last_border = -1;
  for (std::int64_t s = 1; s < segments; ++s) {
    const std::int64_t border = context.geometry.segment_begin(run.request, s);
    const bool inside = border > run.keys.begin && border < run.keys.end;
    if (inside && border % n != 0 && border != last_border) ++splits;
    last_border = border;
  }
  return splits;
}

class AutoSplitter {
 public:
  AutoSplitter(const SplitContext& context, KeyRuns& runs)
      : context_(context),
        runs_(runs),
        item_cost_(runs.total_cost / (kItemsPerSlot * context.spec.slots)),
        head_item_cost_(runs.total_cost / (kHeadItemsPerSlot * context.spec.slots)) {}

  // Splits for items of `factor` times the ideal cost; 0 = no splits.
  void Split(double factor) {
    std::int64_t rows = -1;
    int least_groups = 1;
    for (KeyRun& run : runs_.runs) {
      if (run.rows != rows) least_groups = HeadGroups(run.rows, context_.dims, context_.spec);
      rows = run.rows;
      run.head_groups = least_groups;
      run.splits = 1;
      if (context_.spec.slots == 1) continue;
      const bool heads_first = run.rows * context_.dims.group() >= kComputeBoundRows;
      if (heads_first) RaiseHeadGroups(run, item_cost_);
      if (factor > 0) run.splits = SplitsOf(run, item_cost_ * factor);
      RaiseHeadGroups(run, head_item_cost_);
    }
  }

 private:
  std::int64_t SplitsOf(const KeyRun& run, double item_cost) const {
    const std::int64_t items = std::min(CeilOf(run.cost / item_cost), WorthwhileItems(run));
    const std::int64_t longest = (run.keys.end - run.keys.begin) / kMinSplitKeys;
    return std::clamp<std::int64_t>(CeilDiv<std::int64_t>(items, run.head_groups), 1,
                                    std::max<std::int64_t>(1, longest));
  }

  // More groups of heads, until the run's items cost no more than `item_cost`.
  void RaiseHeadGroups(KeyRun& run, double item_cost) const {
    const std::int64_t items = std::min(CeilOf(run.cost / item_cost), WorthwhileItems(run));
    const std::int64_t groups = CeilDiv<std::int64_t>(items, run.splits);
    run.head_groups =
        static_cast<int>(std::clamp<std::int64_t>(groups, run.head_groups, context_.dims.kv_heads));
  }

  const SplitContext& context_;
  KeyRuns& runs_;
  const double item_cost_;
  const double head_item_cost_;
};

// The most splits whose partials fit the limit.
bool FitAuto(const SplitContext& context, KeyRuns& runs) {
  AutoSplitter splitter(context, runs);
  const std::int64_t limit = context.options.workspace_limit_bytes;
  const auto fits = [&](double factor) {
    splitter.Split(factor);
    std::int64_t bytes = 0;
    const bool countable = PartialBytes(PartialRows(context.blocks, runs), context.dims, bytes);
    return countable && (limit < 0 || bytes <= limit);
  };
  return fits(1) || FitLongerSplits(fits);
}

}  // namespace

std::int64_t PartialRows(const std::vector<PlannedBlock>& blocks, const KeyRuns& runs) {
  std::int64_t rows = 0;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    std::int64_t splits = 0;
    for (std::int64_t i = runs.block_begin[b]; i < runs.block_begin[b + 1]; ++i) {
      const int run = runs.block_runs[static_cast<std::size_t>(i)].run;
      splits += runs.runs[static_cast<std::size_t>(run)].splits;
    }
    std::int64_t more = 0;
    if (splits > 1 && (!Multiply(splits, blocks[b].row_count, more) || !Add(rows, more, rows))) {
      return std::numeric_limits<std::int64_t>::max();
    }
  }
  return rows;
}

bool PartialBytes(std::int64_t rows, const ModelDims& dims, std::int64_t& bytes) {
  std::int64_t vectors = 0;
  return Multiply(rows, dims.q_heads, vectors) && VectorBytes(vectors, dims, bytes);
}

bool VectorBytes(std::int64_t vectors, const ModelDims& dims, std::int64_t& bytes) {
  // Room for outputs, states and the alignment of both.
  std::int64_t bound = 0;
  const std::int64_t floats = dims.head_dim_vo + contract::kStateFloats;
  if (!Multiply(vectors, floats * 4, bound) || !Add(bound, 1024, bound)) return false;
  bytes = contract::PartialLayout{vectors, dims.head_dim_vo}.Bytes();
  return true;
}

bool ChooseSplits(const SplitContext& context, KeyRuns& runs) {
  if (context.options.split == SplitMode::kAuto) return FitAuto(context, runs);
  AutoSplitter(context, runs).Split(0);
  if (context.options.split == SplitMode::kOff) return true;
  for (KeyRun& run : runs.runs) {
    run.splits = FixedSplits(context, run);
    // Heads were cut to fill the slots without splits; with them, fewer cuts do.
    const int least = HeadGroups(run.rows, context.dims, context.spec);
    run.head_groups =
        std::max<int>(least, static_cast<int>(CeilDiv<std::int64_t>(run.head_groups, run.splits)));
  }
  return true;
}

void CutsOf(const SplitContext& context, const KeyRun& run, std::vector<std::int64_t>& cuts) {
  const std::int64_t begin = run.keys.begin;
  const std::int64_t end = run.keys.end;
  cuts.assign(1, begin);
  const auto cut = [&](std::int64_t key) {
    if (key > cuts.back() && key < end) cuts.push_back(key);
  };
  if (context.options.split == SplitMode::kFixed) {
    const std::int64_t n = context.options.fixed_split_rows;
    const auto multiples_to = [&](std::int64_t limit) {
      for (std::int64_t key = RoundDown(cuts.back(), n) + n; key < limit; key += n) cut(key);
    };
    const auto segments = static_cast<std::int64_t>(context.geometry.segments.size());
    for (std::int64_t s = 1; s < segments; ++s) {
      const std::int64_t border = std::min(context.geometry.segment_begin(run.request, s), end);
      multiples_to(border);
      cut(border);
    }
    multiples_to(end);
  } else if (run.splits > 1) {
    const std::int64_t head_rows = run.rows * context.dims.group();
    const double whole = run.cost / context.dims.kv_heads;
    for (std::int64_t i = 1; i < run.splits; ++i) {
      const double share = whole * static_cast<double>(i) / static_cast<double>(run.splits);
      const std::int64_t key = context.costs.KeyAt(run.request, run.keys, head_rows, share);
      cut(RoundDown(key + kTileKeys / 2, kTileKeys));
    }
  }
  cuts.push_back(end);
}

}  // namespace kvilt::plan
