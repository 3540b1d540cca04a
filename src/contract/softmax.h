// The online softmax in the log2 domain with integer references, and the merge of its states.
//
// A state is (m, w, l, o): m an integer held as a float (or -inf while nothing was seen), l the sum
// of p = 2^(x - m), o the sum of p' v and w that of p', where p' is p as it was multiplied: rounded
// to bf16 or f16 on paths that do so, else p itself. out = o / w, so a rounding that all keys share
// cancels (one dominant key: p in (1/2, 1] rounded to bf16 is off by up to 2^-8); lse = m + log2 l.
// Because references are integers, moving a state to another reference multiplies by an exact power
// of two: splitting changes only the order of f32 additions.
#pragma once

#include "types.h"

namespace kvilt::contract {

// f32 values of a state beside o, in memory in this order: m, w, l.
inline constexpr i32 kStateReference = 0;
inline constexpr i32 kStateWeight = 1;
inline constexpr i32 kStateSum = 2;
inline constexpr i32 kStateFloats = 3;

inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;

// 2^k exactly; 0 for k < -126 (such terms are below f32's resolution beside a state that holds at
// least one p > 1/2), +inf beyond 127.
constexpr float ExactPow2(i32 k) {
  if (k < -126) return 0.0f;
  if (k > 127) return __builtin_bit_cast(float, 0x7F800000u);
  return __builtin_bit_cast(float, static_cast<u32>(k + 127) << 23);
}

// The factor that moves sums from reference `from` to `to`. A state that saw nothing (-inf) has
// sums of zero and contributes factor 0. REQUIRES to >= from, to finite or both -inf.
constexpr float MoveFactor(float from, float to) {
  const float gap = from - to;  // -inf - -inf is NaN: handled by the comparison.
  if (!(gap >= -200.0f)) return 0.0f;
  return ExactPow2(static_cast<i32>(gap));
}

}  // namespace kvilt::contract
