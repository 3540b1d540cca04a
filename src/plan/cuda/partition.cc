// Cuts the work of each launch into pieces and deals them to the blocks of its persistent grid.
//
// Two ways, the cheaper by the model wins:
//   ranges    all work in one line, cut into equal ranges, one per block: perfect balance, and at
//             most one cut per block, each of which costs a partial and its merge
//   whole     runs stay whole, longest first to the block that is free first: no partials
// kFixed cuts where it must and deals like "whole"; kOff is "whole".
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "src/contract/work_item.h"
#include "src/plan/cuda/cost.h"
#include "src/plan/cuda/cuda_plan.h"
#include "src/plan/cuda/numbering.h"
#include "src/plan/longest_splits.h"
#include "src/plan/split_kv.h"

namespace kvilt::plan::cuda {
namespace {

using contract::RoundDown;

class LaunchPartition {
 public:
  LaunchPartition(const CudaContext& context, const KeyRuns& runs, LaunchDraft& launch,
                  CudaScratch& scratch)
      : context_(context),
        runs_(runs),
        launch_(launch),
        scratch_(scratch),
        units_(launch.units(context.dims.kv_heads)),
        key_cycles_(launch.estimate.key_cycles),
        item_cycles_(launch.estimate.item_cycles),
        step_(launch.tile.kv_rows) {}

  // Cost of everything uncut.
  void Measure() {
    launch_.grid = context_.spec.slots * launch_.tile.blocks_per_sm;
    total_ = 0;
    longest_ = 0;
    shortest_ = std::numeric_limits<double>::max();
    for (const int r : launch_.runs) {
      const double cost = Cost(Keys(r));
      total_ += cost * units_;
      longest_ = std::max(longest_, cost);
      shortest_ = std::min(shortest_, cost);
    }
    items_ = static_cast<double>(launch_.runs.size()) * units_;
  }

  // Equal ranges; replaces scratch.trial. Returns the makespan.
  double Ranges() {
    std::vector<Piece>& out = scratch_.trial;
    out.clear();
    double rest = total_;
    double makespan = 0;
    int slot = 0;
    const auto room_of = [&] {
      const int left = launch_.grid - slot;
      return (rest + item_cycles_ * (left - 1)) / left;  // Each further cut costs a set-up.
    };
    double room = room_of();
    double used = 0;
    const auto close = [&] {
      if (slot + 1 == launch_.grid) return;  // The last block takes what is left.
      makespan = std::max(makespan, used);
      used = 0;
      ++slot;
      room = room_of();
    };
    for (const int r : launch_.runs) {
      const contract::KeyRange keys = runs_.runs[static_cast<std::size_t>(r)].keys;
      for (int unit = 0; unit < units_; ++unit) {
        contract::i64 next = keys.begin;
        int ordinal = 0;
        while (next < keys.end) {
          const contract::i64 end = TakeFrom(next, keys.end, room - used, slot);
          if (end == next) {  // Nothing worth a piece fits.
            close();
            continue;
          }
          const double cost = Cost(static_cast<double>(end - next));
          out.push_back({r, unit, slot, ordinal++, next, end});
          used += cost;
          rest -= static_cast<double>(end - next) * key_cycles_;
          next = end;
          if (next == keys.end) rest -= item_cycles_;
          if (used + item_cycles_ + static_cast<double>(kMinSplitKeys) * key_cycles_ > room)
            close();
        }
      }
    }
    makespan = std::max(makespan, used);
    return makespan;
  }

  // Uncut items, longest first. Least possible makespan, and then the pieces.
  double WholeBound() const {
    return std::max(
        {longest_, total_ / launch_.grid, std::ceil(items_ / launch_.grid) * shortest_});
  }
  double Whole() {
    std::vector<Piece>& out = scratch_.trial;
    out.clear();
    for (const int r : launch_.runs) {
      const contract::KeyRange keys = runs_.runs[static_cast<std::size_t>(r)].keys;
      for (int unit = 0; unit < units_; ++unit)
        out.push_back({r, unit, 0, 0, keys.begin, keys.end});
    }
    return Deal();
  }

  // Cut at absolute multiples of n and at segment borders.
  double Fixed() {
    std::vector<Piece>& out = scratch_.trial;
    out.clear();
    const SplitContext cut_context{context_.geometry, {}, {}, context_.dims, context_.spec,
                                   context_.options};
    for (const int r : launch_.runs) {
      CutsOf(cut_context, runs_.runs[static_cast<std::size_t>(r)], scratch_.cuts);
      AddCuts(r);
    }
    return Deal();
  }

  // Cut into even splits of at most `most` cycles.
  double Even(double most) {
    std::vector<Piece>& out = scratch_.trial;
    out.clear();
    for (const int r : launch_.runs) {
      const contract::KeyRange keys = runs_.runs[static_cast<std::size_t>(r)].keys;
      const double wanted = std::min(std::ceil(Cost(Keys(r)) / most), Keys(r) / kMinSplitKeys);
      const auto splits = std::max<std::int64_t>(1, static_cast<std::int64_t>(wanted));
      scratch_.cuts.assign(1, keys.begin);
      for (std::int64_t i = 1; i < splits; ++i) {
        const contract::i64 at = keys.begin + (keys.end - keys.begin) * i / splits;
        const contract::i64 cut = RoundDown<contract::i64>(at + step_ / 2, step_);
        if (cut > scratch_.cuts.back() && cut < keys.end) scratch_.cuts.push_back(cut);
      }
      scratch_.cuts.push_back(keys.end);
      AddCuts(r);
    }
    return Deal();
  }

  double ideal() const { return total_ / launch_.grid; }

 private:
  double Keys(int run) const {
    const contract::KeyRange keys = runs_.runs[static_cast<std::size_t>(run)].keys;
    return static_cast<double>(keys.end - keys.begin);
  }
  double Cost(double keys) const { return item_cycles_ + keys * key_cycles_; }

  // Where a piece from `next` ends that fits `room`: all, a cut at a multiple of the step, or
  // `next`.
  contract::i64 TakeFrom(contract::i64 next, contract::i64 end, double room, int slot) const {
    const double slack = 0.5 * static_cast<double>(step_) * key_cycles_;
    if (slot + 1 == launch_.grid || Cost(static_cast<double>(end - next)) <= room + slack)
      return end;
    const double fitting = (room - item_cycles_) / key_cycles_;
    if (fitting < static_cast<double>(kMinSplitKeys)) return next;
    const contract::i64 cut =
        RoundDown<contract::i64>(next + static_cast<contract::i64>(fitting) + step_ / 2, step_);
    if (cut - next < kMinSplitKeys) return next;
    // What would be left must be worth a piece too.
    if (end - cut < kMinSplitKeys) {
      const contract::i64 earlier = RoundDown<contract::i64>(end - kMinSplitKeys, step_);
      return earlier - next >= kMinSplitKeys ? earlier : end;
    }
    return cut;
  }

  void AddCuts(int run) {
    for (int unit = 0; unit < units_; ++unit) {
      for (std::size_t i = 0; i + 1 < scratch_.cuts.size(); ++i) {
        scratch_.trial.push_back(
            {run, unit, 0, static_cast<int>(i), scratch_.cuts[i], scratch_.cuts[i + 1]});
      }
    }
  }

  // Gives each piece of the trial a slot, the costliest first to the slot that is free first, and
  // sorts the pieces by slot. Returns the makespan.
  double Deal() {
    std::vector<Piece>& pieces = scratch_.trial;
    auto& order = scratch_.order;
    order.clear();
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      order.emplace_back(Cost(static_cast<double>(pieces[i].key_end - pieces[i].key_begin)),
                         static_cast<int>(i));
    }
    const auto costlier = [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first > b.first : a.second < b.second;
    };
    if (!std::is_sorted(order.begin(), order.end(), costlier)) {
      std::sort(order.begin(), order.end(), costlier);
    }
    auto& heap = scratch_.heap;  // (free at, slot), earliest first; ties by slot.
    heap.clear();
    double makespan = 0;
    for (const auto& [cost, index] : order) {
      int slot = static_cast<int>(heap.size());
      double end = cost;
      if (slot < launch_.grid) {
        heap.emplace_back(end, slot);
        std::push_heap(heap.begin(), heap.end(), std::greater<>());
      } else {
        slot = heap.front().second;
        end += heap.front().first;
        ReplaceEarliest({end, slot});
      }
      pieces[static_cast<std::size_t>(index)].slot = slot;
      makespan = std::max(makespan, end);
    }
    SortBySlot();
    return makespan;
  }

  // Sinks a new entry from the heap's top: half the work of a pop and a push.
  void ReplaceEarliest(std::pair<double, int> entry) {
    auto& heap = scratch_.heap;
    std::size_t at = 0;
    for (std::size_t child = 1; child < heap.size(); child = 2 * at + 1) {
      if (child + 1 < heap.size() && heap[child + 1] < heap[child]) ++child;
      if (entry <= heap[child]) break;
      heap[at] = heap[child];
      at = child;
    }
    heap[at] = entry;
  }

  // Stable counting sort; within a slot costliest first, as dealt.
  void SortBySlot() {
    std::vector<int>& next = scratch_.slot_count;
    next.assign(static_cast<std::size_t>(launch_.grid) + 1, 0);
    for (const Piece& piece : scratch_.trial) ++next[static_cast<std::size_t>(piece.slot) + 1];
    for (std::size_t s = 1; s < next.size(); ++s) next[s] += next[s - 1];
    std::vector<Piece>& sorted = scratch_.dealt;
    sorted.resize(scratch_.trial.size());
    for (const auto& [cost, index] : scratch_.order) {
      const Piece& piece = scratch_.trial[static_cast<std::size_t>(index)];
      sorted[static_cast<std::size_t>(next[static_cast<std::size_t>(piece.slot)]++)] = piece;
    }
    scratch_.trial.swap(sorted);
  }

  const CudaContext& context_;
  const KeyRuns& runs_;
  LaunchDraft& launch_;
  CudaScratch& scratch_;
  const int units_;
  const double key_cycles_;
  const double item_cycles_;
  const contract::i64 step_;
  double total_ = 0;
  double longest_ = 0;
  double shortest_ = 0;
  double items_ = 0;
};

// What stitching the partials of these pieces takes, by the model.
double MergeUs(const CudaContext& context, const LaunchDraft& launch,
               const std::vector<Piece>& pieces) {
  double partials = 0;
  int splits = 1;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    splits = std::max(splits, pieces[i].ordinal + 1);
    const bool cut = pieces[i].ordinal > 0 || (i + 1 < pieces.size() && pieces[i + 1].ordinal > 0 &&
                                               pieces[i + 1].run == pieces[i].run);
    partials += cut;
  }
  if (splits == 1) return 0;
  const double bytes =
      2 * partials * launch.tile.kv_heads * launch.tile.q_rows * (launch.tile.head_dim_vo + 3) * 4;
  return kMergeUs + splits * kMergeSplitUs + bytes / (context.spec.read_gb_per_s * 1e3);
}

void Append(const CudaContext& context, CudaScratch& scratch, LaunchDraft& launch,
            double makespan) {
  launch.merge_us = MergeUs(context, launch, scratch.trial);
  scratch.pieces.insert(scratch.pieces.end(), scratch.trial.begin(), scratch.trial.end());
  launch.makespan_cycles = makespan;
  launch.busy_blocks = 0;
  int last = -1;
  for (const Piece& piece : scratch.trial) {
    launch.busy_blocks += piece.slot != last;
    last = piece.slot;
  }
}

// One launch without regard to the workspace.
void PartitionFreely(const CudaContext& context, const KeyRuns& runs, LaunchDraft& launch,
                     CudaScratch& scratch) {
  LaunchPartition partition(context, runs, launch, scratch);
  partition.Measure();
  if (context.options.split == SplitMode::kFixed) {
    return Append(context, scratch, launch, partition.Fixed());
  }
  if (context.options.split == SplitMode::kOff) {
    return Append(context, scratch, launch, partition.Whole());
  }
  double ranges = partition.Ranges();
  const double merge = MergeUs(context, launch, scratch.trial) * context.spec.clock_ghz * 1e3;
  // Dealing is dear for the host, so only where it may save 3 %.
  if (partition.WholeBound() >= 0.97 * (ranges + merge)) {
    return Append(context, scratch, launch, ranges);
  }
  const double whole = partition.Whole();
  if (whole > ranges + merge) {
    ranges = partition.Ranges();
    return Append(context, scratch, launch, ranges);
  }
  Append(context, scratch, launch, whole);
}

void PartitionEvenly(const CudaContext& context, const KeyRuns& runs, LaunchDraft& launch,
                     CudaScratch& scratch, double factor) {
  LaunchPartition partition(context, runs, launch, scratch);
  partition.Measure();
  const double makespan =
      factor > 0 ? partition.Even(partition.ideal() * factor) : partition.Whole();
  Append(context, scratch, launch, makespan);
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
  scratch.pieces.clear();
  scratch.piece_begin.assign(1, 0);
  for (std::size_t l = 0; l < scratch.launch_count; ++l) {
    cut(scratch.launches[l]);
    scratch.piece_begin.push_back(scratch.pieces.size());
  }
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
