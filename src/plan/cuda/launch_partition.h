// Cuts one launch's work into pieces and gives each a block of the persistent grid. The inside of
// partition.cc, which chooses among the ways.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/contract/work_item.h"
#include "src/plan/cuda/cost.h"
#include "src/plan/cuda/cuda_plan.h"
#include "src/plan/cuda/deal.h"
#include "src/plan/split_kv.h"

namespace kvilt::plan::cuda {

// What stitching so many partials takes, by the model.
inline double MergeUs(const CudaContext& context, const LaunchDraft& launch, double partials,
                      int splits) {
  if (splits == 1) return 0;
  const double bytes =
      2 * partials * launch.tile.kv_heads * launch.tile.q_rows * (launch.tile.head_dim_vo + 3) * 4;
  return kMergeUs + splits * kMergeSplitUs + bytes / (context.spec.read_gb_per_s * 1e3);
}

// Leaves one launch's pieces at the end of scratch.pieces, and makespan, total, merge and busy
// blocks in the launch.
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
        step_(launch.tile.kv_rows),
        least_(item_cycles_ + static_cast<double>(kMinSplitKeys) * key_cycles_),
        slack_(0.5 * static_cast<double>(step_) * key_cycles_),
        first_cut_(scratch.cut_units.size()) {
    launch_.grid = context_.spec.slots * launch_.tile.blocks_per_sm;
    const std::size_t likely =
        scratch_.piece_begin.back() + launch_.runs.size() + static_cast<std::size_t>(launch_.grid);
    if (scratch_.pieces.size() < likely) scratch_.pieces.resize(likely);
    if (context_.options.split == SplitMode::kAuto) ReserveTrial();
    total_ = 0;
    longest_ = 0;
    shortest_ = std::numeric_limits<double>::max();
    for (const int r : launch_.runs) {
      const double cost = Cost(KeysOf(r));
      total_ += cost * units_;
      longest_ = std::max(longest_, cost);
      shortest_ = std::min(shortest_, cost);
    }
    items_ = static_cast<double>(launch_.runs.size()) * units_;
    Begin();
  }

  // Equal ranges. Returns the makespan.
  double Ranges() {
    rest_ = total_;
    room_ = RoomOfSlot();
    double partials = 0;
    int splits = 1;
    for (const int r : launch_.runs) {
      const contract::KeyRange keys = KeysOf(r);
      const double key_cost = static_cast<double>(keys.end - keys.begin) * key_cycles_;
      for (int unit = 0; unit < units_; ++unit) {
        unit = AddWholeUnits(r, unit, keys, key_cost);
        if (unit == units_) break;
        const int pieces = CutUnitToRoom(r, unit, keys);
        if (pieces == 1) continue;
        scratch_.cut_units.push_back({r, unit, pieces});
        partials += pieces;
        splits = std::max(splits, pieces);
      }
    }
    EndSlot();
    launch_.merge_us = MergeUs(context_, launch_, partials, splits);
    return launch_.makespan_cycles;
  }

  // Uncut items, longest first: the least possible makespan; and the makespan, until taken a trial
  // beside what the launch has.
  double WholeBound() const {
    return std::max(
        {longest_, total_ / launch_.grid, std::ceil(items_ / launch_.grid) * shortest_});
  }
  double TryWhole() {
    scratch_.trial.clear();
    scratch_.order.clear();
    for (const int r : launch_.runs) {
      const contract::KeyRange keys = KeysOf(r);
      scratch_.order.emplace_back(Cost(keys), static_cast<int>(scratch_.trial.size()));
      for (int unit = 0; unit < units_; ++unit)
        scratch_.trial.push_back({r, unit, 1, 0, 0, keys.begin, keys.end});
    }
    return Deal(launch_.grid, units_, scratch_);
  }
  void TakeWhole(double makespan) {
    scratch_.cut_units.resize(first_cut_);
    TakeTrial(makespan, units_);
    launch_.merge_us = 0;
  }

  // Cut at absolute multiples of n and at segment borders.
  void Fixed() {
    scratch_.trial.clear();
    const SplitContext cut_context{context_.geometry, {}, {}, context_.dims, context_.spec,
                                   context_.options};
    for (const int r : launch_.runs) {
      CutsOf(cut_context, runs_.runs[static_cast<std::size_t>(r)], scratch_.cuts);
      AddCuts(r);
    }
    DealCuts();
  }

  // Cut into even splits of at most `most` cycles.
  void Even(double most) {
    scratch_.trial.clear();
    for (const int r : launch_.runs) {
      const contract::KeyRange keys = KeysOf(r);
      const auto count = static_cast<double>(keys.end - keys.begin);
      const double wanted = std::min(std::ceil(Cost(keys) / most), count / kMinSplitKeys);
      const auto splits = std::max<std::int64_t>(1, static_cast<std::int64_t>(wanted));
      scratch_.cuts.assign(1, keys.begin);
      for (std::int64_t i = 1; i < splits; ++i) {
        const contract::i64 at = keys.begin + (keys.end - keys.begin) * i / splits;
        const contract::i64 cut = contract::RoundDown<contract::i64>(at + step_ / 2, step_);
        if (cut > scratch_.cuts.back() && cut < keys.end) scratch_.cuts.push_back(cut);
      }
      scratch_.cuts.push_back(keys.end);
      AddCuts(r);
    }
    DealCuts();
  }

  double ideal() const { return total_ / launch_.grid; }

  // The launch's pieces are as they stay.
  void Finish() { scratch_.piece_begin.push_back(count_); }

 private:
  // Which way is cheaper hangs on the lengths: an update must find room for the other one too.
  void ReserveTrial() {
    const auto slots = static_cast<std::size_t>(launch_.grid);
    scratch_.trial.reserve(launch_.runs.size() * static_cast<std::size_t>(units_));
    scratch_.order.reserve(launch_.runs.size());
    scratch_.slot_count.reserve(slots + 1);
    scratch_.heap.reserve(slots);
  }

  contract::KeyRange KeysOf(int run) const {
    return runs_.runs[static_cast<std::size_t>(run)].keys;
  }
  double Cost(contract::KeyRange keys) const {
    return item_cycles_ + static_cast<double>(keys.end - keys.begin) * key_cycles_;
  }

  void Begin() {
    count_ = scratch_.piece_begin.back();
    launch_.makespan_cycles = 0;
    launch_.total_cycles = 0;
    launch_.busy_blocks = 0;
    launch_.items = 0;
  }

  // Of a vector that only grows: pieces of the plan before are written over.
  void Push(const Piece& piece) {
    if (count_ == scratch_.pieces.size())
      scratch_.pieces.resize(std::max<std::size_t>(64, 2 * count_));
    scratch_.pieces[count_++] = piece;
    launch_.items += piece.units;
  }

  // What the slot may take: its share of the rest. Each further cut costs a set-up.
  double RoomOfSlot() const {
    const int left = launch_.grid - slot_;
    return (rest_ + item_cycles_ * (left - 1)) / left;
  }

  void EndSlot() {
    launch_.makespan_cycles = std::max(launch_.makespan_cycles, used_);
    launch_.busy_blocks += used_ > 0;
    used_ = 0;
  }

  void CloseSlot() {
    if (slot_ + 1 == launch_.grid) return;  // The last block takes what is left.
    EndSlot();
    ++slot_;
    room_ = RoomOfSlot();
  }

  void AddToSlot(const Piece& piece, double key_cost, bool last) {
    const double cost = item_cycles_ + key_cost;
    Push(piece);
    launch_.total_cycles += cost;
    used_ += cost;
    rest_ -= key_cost;
    if (last) rest_ -= item_cycles_;
    if (used_ > room_ - least_) CloseSlot();
  }

  // Units of a run from `unit` on, each whole, while the slot has room: one piece. Returns the
  // first unit that is left.
  int AddWholeUnits(int run, int unit, contract::KeyRange keys, double key_cost) {
    const double cost = item_cycles_ + key_cost;
    const double full = room_ - least_;  // Then nothing more is worth a piece.
    int end = unit;
    double used = used_ + (units_ - unit) * cost;
    if (used <= full) {  // Most: all of them, and there is room left.
      end = units_;
    } else {
      for (used = used_; end < units_ && used <= full && cost <= room_ - used + slack_; ++end) {
        used += cost;
      }
      if (end == unit) return unit;
    }
    Push({run, unit, end - unit, slot_, 0, keys.begin, keys.end});
    launch_.total_cycles += (end - unit) * cost;
    rest_ -= (end - unit) * cost;
    used_ = used;
    if (used_ > full) CloseSlot();
    return end;
  }

  // One unit of a run over as many slots as it needs; the number of pieces.
  int CutUnitToRoom(int run, int unit, contract::KeyRange keys) {
    int pieces = 0;
    for (contract::i64 next = keys.begin; next < keys.end;) {
      const contract::i64 end = TakeFrom(next, keys.end);
      if (end == next) {  // Nothing worth a piece fits.
        CloseSlot();
        continue;
      }
      const double key_cost = static_cast<double>(end - next) * key_cycles_;
      AddToSlot({run, unit, 1, slot_, pieces++, next, end}, key_cost, end == keys.end);
      next = end;
    }
    return pieces;
  }

  // Where a piece from `next` ends that fits the slot's room: all, a cut at a multiple of the step,
  // or `next`.
  contract::i64 TakeFrom(contract::i64 next, contract::i64 end) const {
    const double room = room_ - used_;
    if (slot_ + 1 == launch_.grid || Cost({next, end}) <= room + slack_) return end;
    const double fitting = (room - item_cycles_) / key_cycles_;
    // Half a key less is rounding: equal shares must not leave a block out.
    if (fitting < static_cast<double>(kMinSplitKeys) - 0.5) return next;
    const contract::i64 cut = contract::RoundDown<contract::i64>(
        next + static_cast<contract::i64>(fitting) + step_ / 2, step_);
    if (cut - next < kMinSplitKeys) return next;
    // What would be left must be worth a piece too.
    if (end - cut < kMinSplitKeys) {
      const contract::i64 earlier = contract::RoundDown<contract::i64>(end - kMinSplitKeys, step_);
      return earlier - next >= kMinSplitKeys ? earlier : end;
    }
    return cut;
  }

  void AddCuts(int run) {
    const auto pieces = static_cast<int>(scratch_.cuts.size()) - 1;
    if (pieces > 1) scratch_.cut_units.push_back({run, kAllUnits, pieces});
    for (int unit = 0; unit < units_; ++unit) {
      for (std::size_t i = 0; i + 1 < scratch_.cuts.size(); ++i) {
        scratch_.trial.push_back(
            {run, unit, 1, 0, static_cast<int>(i), scratch_.cuts[i], scratch_.cuts[i + 1]});
      }
    }
  }

  void DealCuts() {
    scratch_.order.clear();
    for (std::size_t i = 0; i < scratch_.trial.size(); ++i) {
      const Piece& piece = scratch_.trial[i];
      scratch_.order.emplace_back(Cost({piece.key_begin, piece.key_end}), static_cast<int>(i));
    }
    TakeTrial(Deal(launch_.grid, 1, scratch_), 1);
    launch_.merge_us = MergeUsOfPieces();
  }

  // The dealt trial becomes the launch's pieces, by slot: a stable counting sort, so that within a
  // slot the costliest come first, as dealt.
  void TakeTrial(double makespan, int alike) {
    std::vector<int>& next = scratch_.slot_count;
    next.assign(static_cast<std::size_t>(launch_.grid) + 1, 0);
    for (const Piece& piece : scratch_.trial) ++next[static_cast<std::size_t>(piece.slot) + 1];
    for (std::size_t s = 1; s < next.size(); ++s) next[s] += next[s - 1];
    Begin();
    const std::size_t end = count_ + scratch_.trial.size();
    if (end > scratch_.pieces.size()) scratch_.pieces.resize(end);
    Piece* pieces = scratch_.pieces.data() + count_;
    for (const auto& [cost, first] : scratch_.order) {
      for (int i = first; i < first + alike; ++i) {
        const Piece& piece = scratch_.trial[static_cast<std::size_t>(i)];
        pieces[next[static_cast<std::size_t>(piece.slot)]++] = piece;
        launch_.total_cycles += cost;
      }
    }
    launch_.items = static_cast<std::int64_t>(end - count_);
    count_ = end;
    launch_.makespan_cycles = makespan;
    // Every slot has its first piece before any has two.
    launch_.busy_blocks = static_cast<int>(scratch_.heap.size());
  }

  // Of pieces in no order of keys.
  double MergeUsOfPieces() const {
    double partials = 0;
    int splits = 1;
    for (std::size_t i = scratch_.piece_begin.back(); i < count_; ++i) {
      const Piece& piece = scratch_.pieces[i];
      splits = std::max(splits, piece.ordinal + 1);
      const bool cut = piece.ordinal > 0 || (i + 1 < count_ && scratch_.pieces[i + 1].ordinal > 0 &&
                                             scratch_.pieces[i + 1].run == piece.run);
      partials += cut;
    }
    return MergeUs(context_, launch_, partials, splits);
  }

  const CudaContext& context_;
  const KeyRuns& runs_;
  LaunchDraft& launch_;
  CudaScratch& scratch_;
  const int units_;
  const double key_cycles_;
  const double item_cycles_;
  const contract::i64 step_;
  const double least_;  // Of a piece.
  const double slack_;  // Half a step more than the room is no cut.
  const std::size_t first_cut_;
  double total_ = 0;
  double longest_ = 0;
  double shortest_ = 0;
  double items_ = 0;
  std::size_t count_ = 0;  // End of the launch's pieces.
  // The slot that Ranges fills.
  int slot_ = 0;
  double rest_ = 0;
  double room_ = 0;
  double used_ = 0;
};

}  // namespace kvilt::plan::cuda
