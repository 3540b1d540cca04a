// Merges attention results of the same queries over disjoint keys, as src/cpu/merge_states.cc does.
//
// A warp for each row and head. Weights are those of 32 states at a time, one a lane; sums in f64
// in the order of the states. An output element is read and written by one lane, so the result may
// be one of the states.
#pragma once

#include "formats.h"
#include "merge_params.h"
#include "simt.cuh"

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
    if (LaneIndex() == 0) *LseOf(args_.result) = static_cast<float>(Lse());
  }

 private:
  static constexpr i32 kLaneDims = 8;
  static constexpr double kLn2 = 0.69314718055994530942;
  static constexpr u64 kMinusInfinityBits = 0xFFF0000000000000u;
  static constexpr double Empty() { return __builtin_bit_cast(double, kMinusInfinityBits); }

  float* LseOf(const StateParams& state) const {
    return state.lse + row_ * state.lse_row_stride + head_ * state.lse_head_stride;
  }
  u8* OutOf(const StateParams& state) const {
    return state.out + row_ * state.row_stride + head_ * state.head_stride;
  }

  // 2^k, REQUIRES -1022 <= k <= 1023.
  static double Pow2(i32 k) { return __builtin_bit_cast(double, static_cast<u64>(k + 1023) << 52); }

  // REQUIRES x <= 1 or NaN. Good to 1e-14; NaN stays NaN.
  static double Exp2Double(double x) {
    if (x < -1100.0) return 0.0;
    if (!(x <= 1.0)) return x;
    const double whole = RoundToEven(x);
    const double t = (x - whole) * kLn2;  // |t| <= 0.35
    // Horner's scheme of e^t, 1 + t (1 + t / 2 (1 + t / 3 (...))).
    double sum = 1.0;
    KVILT_UNROLLED
    for (i32 n = 12; n > 0; --n) sum = FmaDouble(sum * t, 1.0 / n, 1.0);
    const i32 k = static_cast<i32>(whole);
    return sum * Pow2(k / 2) * Pow2(k - k / 2);
  }
  // REQUIRES 1 <= x < 2^31 or NaN. An f32 guess and a step of Newton's method.
  static double Log2Double(double x) {
    const double guess = static_cast<double>(Log2(static_cast<float>(x)));
    const double whole = RoundToEven(guess);
    const double part = x / Pow2(x >= 1.0 ? static_cast<i32>(whole) : 0);
    const double error = part * Exp2Double(whole - guess) - 1.0;
    return guess + error / kLn2;
  }

  static double ShuffleDouble(double v, i32 lane) {
    const u64 bits = __builtin_bit_cast(u64, v);
    const u64 low = Shuffle(static_cast<u32>(bits), lane);
    const u64 high = Shuffle(static_cast<u32>(bits >> 32), lane);
    return __builtin_bit_cast(double, high << 32 | low);
  }

  // Of the state of this lane; REQUIRES that it is there and not empty.
  double WeightOf(const StateParams& state) const {
    const double gap = static_cast<double>(*LseOf(state)) - most_;
    return Exp2Double(args_.base_two != 0 ? gap : gap / kLn2);
  }

  // Largest lse (NaN if one is) and sum of weights. The whole warp; every lane gets both.
  void FindTotal() {
    most_ = Empty();
    for (i64 i = LaneIndex(); i < args_.count; i += 32) {
      Raise(static_cast<double>(*LseOf(args_.states[i])));
    }
    for (i32 mask = 16; mask > 0; mask /= 2) Raise(ShuffleDouble(most_, LaneIndex() ^ mask));
    double sum = 0;
    for (i64 i = LaneIndex(); i < args_.count; i += 32) {
      if (!IsEmpty(args_.states[i])) sum += WeightOf(args_.states[i]);
    }
    for (i32 mask = 16; mask > 0; mask /= 2) sum += ShuffleDouble(sum, LaneIndex() ^ mask);
    sum_ = sum;
  }
  void Raise(double lse) {
    if (lse > most_ || lse != lse) most_ = lse;
  }
  bool IsEmpty(const StateParams& state) const {
    return static_cast<double>(*LseOf(state)) == Empty();
  }

  double Lse() const {
    if (most_ == Empty()) return most_;
    const double log = Log2Double(sum_);
    return most_ + (args_.base_two != 0 ? log : log * kLn2);
  }

  // Elements [begin, begin + 32 kLaneDims), lanes side by side.
  void MergePiece(i64 begin) const {
    double sums[kLaneDims] = {};
    for (i64 first = 0; first < args_.count; first += 32) {
      const i64 own = first + LaneIndex();
      const bool present = own < args_.count && !IsEmpty(args_.states[own]);
      const double share = present ? WeightOf(args_.states[own]) / sum_ : 0.0;
      const u32 all = Ballot(present);
      for (i32 j = 0; j < 32; ++j) {
        if ((all >> j & 1u) == 0) continue;
        const double weight = ShuffleDouble(share, j);
        const StateParams& state = args_.states[first + j];
        const u8* const out = OutOf(state);
        KVILT_UNROLLED
        for (i32 e = 0; e < kLaneDims; ++e) {
          const i64 d = begin + 32 * e + LaneIndex();
          if (d < args_.head_dim) sums[e] += weight * double{Load(state.format, out, d)};
        }
      }
    }
    u8* const out = OutOf(args_.result);
    KVILT_UNROLLED
    for (i32 e = 0; e < kLaneDims; ++e) {
      const i64 d = begin + 32 * e + LaneIndex();
      if (d < args_.head_dim) Store(args_.result.format, static_cast<float>(sums[e]), out, d);
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
  double most_ = 0, sum_ = 0;
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
