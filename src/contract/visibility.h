// Which keys a query row may see by position: causal and window, one formula for planner and
// kernels. Custom and tree bits come on top and only remove keys.
#pragma once

#include "types.h"

namespace kvilt::contract {

// Values equal kvilt::MaskMode.
enum class Mask : i32 { kNone = 1, kCausal = 2, kCustom = 3, kTree = 4 };

struct Visibility {
  i32 mask = 1;  // Mask
  i64 window_left = -1;
  i64 window_right = -1;
};

struct KeyRange {
  i64 begin = 0;
  i64 end = 0;  // begin >= end: nothing.
  constexpr bool empty() const { return begin >= end; }
};

// Keys that row i of a request may see. `position` is i + kv_len - q_len unless positions are
// given. Additions saturate, so windows near the 64-bit limit are legal.
constexpr KeyRange VisibleKeys(const Visibility& v, i64 i, i64 q_len, i64 kv_len, i64 position) {
  KeyRange range{0, kv_len};
  if (v.mask == static_cast<i32>(Mask::kCausal)) {
    range.end = Min(range.end, i + (kv_len - q_len) + 1);
  }
  if (v.window_left >= 0 && position > v.window_left) {
    range.begin = Max(range.begin, position - v.window_left);
  }
  if (v.window_right >= 0 && v.window_right < kv_len - Min<i64>(position, kv_len)) {
    range.end = Min(range.end, position + v.window_right + 1);
  }
  if (range.end < range.begin) range.end = range.begin;
  return range;
}

// ALiBi counts from here. Only differences of scores count, except before a soft cap, so it is the
// row's last visible key (its first, if the slope falls) and not its origin: a bias of tens of
// thousands would leave f32 few digits for the scores it is added to (3e-4 off at 32768 keys). A
// function of the row and the slope alone, so that splits agree.
constexpr i64 BiasAnchor(bool before_cap, KeyRange visible, i64 origin, float slope) {
  if (before_cap || visible.empty()) return origin;
  return slope < 0.0f ? visible.begin : visible.end - 1;
}

// Bit of a custom mask (row-major [q_len, kv_len]) or tree mask ([q_len, q_len] over the last q_len
// keys) for row i, key j; `bits` is the request's first byte.
constexpr bool MaskBit(const u8* bits, i64 index) { return (bits[index >> 3] >> (index & 7)) & 1; }
constexpr bool MaskAllows(i32 mask, const u8* bits, i64 i, i64 j, i64 q_len, i64 kv_len) {
  if (mask == static_cast<i32>(Mask::kCustom)) return MaskBit(bits, i * kv_len + j);
  if (mask == static_cast<i32>(Mask::kTree)) {
    const i64 column = j - (kv_len - q_len);
    return column < 0 || MaskBit(bits, i * q_len + column);
  }
  return true;
}
// Bytes of one request's bits.
constexpr i64 MaskBytes(i32 mask, i64 q_len, i64 kv_len) {
  if (mask == static_cast<i32>(Mask::kCustom)) return CeilDiv<i64>(q_len * kv_len, 8);
  if (mask == static_cast<i32>(Mask::kTree)) return CeilDiv<i64>(q_len * q_len, 8);
  return 0;
}

}  // namespace kvilt::contract
