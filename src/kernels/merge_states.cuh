// Merges attention results of the same queries over disjoint keys, as src/cpu/merge_states.cc does.
//
// A warp for each row and head. Shares are those of 32 states at a time, one a lane. Such a group
// is summed in f32 in the order of the states, and the groups in f64, so that no number of states
// drifts. An output element is read and written by one lane, so the result may be one of the
// states.
#pragma once

#include "formats.h"
#include "merge_params.h"
#include "simt.cuh"
#include "softmax.h"

namespace kvilt::kernels {

using namespace simt;  // NOLINT: the machine's words.

using contract::MergeStatesArgs;
using contract::StateParams;

class StateMerger {
 public:
  StateMerger(const MergeStatesArgs& args, i64 row, i64 head)
      : args_(args), row_(row), head_(head) {}

  void Run() {
    FindTotal();
    for (i64 d = 0; d < args_.head_dim; d += 32 * kLaneDims) MergePiece(d);
    WarpSync();  // All lanes have read every lse.
    if (LaneIndex() == 0) *LseOf(args_.result) = Lse();
  }

 private:
  static constexpr i32 kLaneDims = 8;
  static constexpr float kMinusInfinity =
      contract::BitsFloat(contract::kF32SignBit | contract::kF32Infinity);

  float* LseOf(const StateParams& state) const {
    return state.lse + row_ * state.lse_row_stride + head_ * state.lse_head_stride;
  }
  u8* OutOf(const StateParams& state) const {
    return state.out + row_ * state.row_stride + head_ * state.head_stride;
  }
  // Of state i; -inf, that of an empty one, past the last.
  float LseOfState(i64 i) const {
    return i < args_.count ? *LseOf(args_.states[i]) : kMinusInfinity;
  }
  // REQUIRES an lse that is not -inf.
  float WeightOf(float lse) const {
    return Exp2((lse - most_) * (args_.base_two != 0 ? 1.0f : contract::kLog2E));
  }

  // Largest lse (NaN if one is) and sum of weights. The whole warp; every lane gets both.
  void FindTotal() {
    for (i64 i = LaneIndex(); i < args_.count; i += 32) Raise(LseOfState(i));
    for (i32 mask = 16; mask > 0; mask /= 2) Raise(ShuffleXor(most_, mask));
    double lane_sum = 0;
    for (i64 i = LaneIndex(); i < args_.count; i += 32) {
      const float lse = LseOfState(i);
      if (lse != kMinusInfinity) lane_sum += double{WeightOf(lse)};
    }
    sum_ = static_cast<float>(lane_sum);
    for (i32 mask = 16; mask > 0; mask /= 2) sum_ += ShuffleXor(sum_, mask);
  }
  void Raise(float lse) {
    if (lse > most_ || contract::IsNan(lse)) most_ = lse;
  }

  float Lse() const {
    if (most_ == kMinusInfinity) return most_;
    return most_ + Log2(sum_) * (args_.base_two != 0 ? 1.0f : contract::kLn2);
  }

  // Elements [begin, begin + 32 kLaneDims), lanes side by side.
  void MergePiece(i64 begin) const {
    double sums[kLaneDims] = {};
    for (i64 first = 0; first < args_.count; first += 32) {
      float group[kLaneDims] = {};
      AddGroup(first, begin, group);
      KVILT_UNROLLED
      for (i32 e = 0; e < kLaneDims; ++e) sums[e] += double{group[e]};
    }
    u8* const out = OutOf(args_.result);
    KVILT_UNROLLED
    for (i32 e = 0; e < kLaneDims; ++e) {
      const i64 d = begin + 32 * e + LaneIndex();
      if (d < args_.head_dim) Store(args_.result.format, static_cast<float>(sums[e]), out, d);
    }
  }

  // Of states [first, first + 32).
  void AddGroup(i64 first, i64 begin, float (&group)[kLaneDims]) const {
    const float lse = LseOfState(first + LaneIndex());
    const bool present = lse != kMinusInfinity;
    const float share = present ? Divide(WeightOf(lse), sum_) : 0.0f;
    const u32 all = Ballot(present);
    for (i32 j = 0; j < 32; ++j) {
      if ((all >> j & 1u) == 0) continue;
      const float weight = Shuffle(share, j);
      const StateParams& state = args_.states[first + j];
      const u8* const out = OutOf(state);
      KVILT_UNROLLED
      for (i32 e = 0; e < kLaneDims; ++e) {
        const i64 d = begin + 32 * e + LaneIndex();
        if (d < args_.head_dim) group[e] += weight * Load(state.format, out, d);
      }
    }
  }

  static float Load(i32 format, const u8* row, i64 d) {
    if (format == static_cast<i32>(contract::Format::kF32)) {
      return reinterpret_cast<const float*>(row)[d];
    }
    const u16 half = reinterpret_cast<const u16*>(row)[d];
    return format == static_cast<i32>(contract::Format::kBF16) ? contract::DecodeBF16(half)
                                                               : contract::DecodeF16(half);
  }
  static void Store(i32 format, float x, u8* row, i64 d) {
    if (format == static_cast<i32>(contract::Format::kF32)) {
      reinterpret_cast<float*>(row)[d] = x;
      return;
    }
    reinterpret_cast<u16*>(row)[d] = format == static_cast<i32>(contract::Format::kBF16)
                                         ? contract::EncodeBF16(x)
                                         : contract::EncodeF16(x);
  }

  const MergeStatesArgs& args_;
  const i64 row_, head_;
  float most_ = kMinusInfinity;
  float sum_ = 0;
};

// Every thread of blocks of kMergeStatesThreads, any grid.
inline void MergeStates(const MergeStatesArgs& args) {
  WaitForPrevious();
  const i64 step = i64{GridBlocks()} * (BlockThreads() / 32);
  const i64 pairs = args.rows * args.heads;
  for (i64 i = i64{BlockIndex()} * (BlockThreads() / 32) + WarpIndex(); i < pairs; i += step) {
    StateMerger(args, i / args.heads, i % args.heads).Run();
  }
  LetNextStart();
}

}  // namespace kvilt::kernels
