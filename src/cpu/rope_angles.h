// cos and sin of position * frequency for the pairs of a rotation, in double precision, without a
// library call per element: a position is written in base 64, and the unit complex numbers of its
// two low digits come from tables, so a library call is needed only every 4096 positions. The
// result depends on the position alone. Error below 1e-14 + 2e-16 |angle|.
#pragma once

#include "src/contract/attention_params.h"
#include "src/cpu/aligned_buffer.h"
#include "src/cpu/attention_body.h"

namespace kvilt::cpu {

class RopeAngles {
 public:
  static constexpr i64 kRadix = 64;

  // Tables for `rope`, kept in `buffer`. REQUIRES: rope.enabled; frequencies outlive this object.
  RopeAngles(const contract::RopeParams& rope, AlignedBuffer& buffer);

  int pairs() const { return pairs_; }
  // Doubles of a cursor's memory.
  static i64 CursorDoubles(int pairs) { return 4 * i64{pairs}; }

  // Remembers the high digits of the last position. One per thread.
  class Cursor {
   public:
    Cursor() = default;
    Cursor(const RopeAngles& angles, double* memory);
    // Writes pairs() cosines and sines.
    void Fill(const AttentionBody& body, i64 position, float* cosines, float* sines);

   private:
    const RopeAngles* angles_ = nullptr;
    bool valid_ = false;
    i64 rest_ = 0;                   // position / 4096
    i64 middle_ = 0;                 // position / 64 % 64
    double* rest_angles_ = nullptr;  // cosines, then sines
    double* base_ = nullptr;         // of the rest and the middle digit together
  };

 private:
  const double* low(i64 digit) const { return low_ + digit * 2 * pairs_; }
  const double* middle(i64 digit) const { return middle_ + digit * 2 * pairs_; }

  const double* frequencies_;
  int pairs_;
  double* low_;     // [64][cosines, sines][pairs]
  double* middle_;  // The same of multiples of 64.
};

}  // namespace kvilt::cpu
