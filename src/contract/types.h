// Fixed-width names without a standard header: this room includes nothing from outside itself, so
// that g++, clang++ and NVRTC read the same text.
#pragma once

namespace kvilt::contract {

using i8 = signed char;
using u8 = unsigned char;
using i16 = short;
using u16 = unsigned short;
using i32 = int;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;

static_assert(sizeof(i8) == 1 && sizeof(i16) == 2 && sizeof(i32) == 4 && sizeof(i64) == 8);

template <class T>
constexpr T Min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
constexpr T Max(T a, T b) {
  return a < b ? b : a;
}
// ceil(a / b), REQUIRES a >= 0, b > 0.
template <class T>
constexpr T CeilDiv(T a, T b) {
  return a / b + (a % b != 0);
}
// The largest multiple of b that is <= a. REQUIRES a >= 0, b > 0.
template <class T>
constexpr T RoundDown(T a, T b) {
  return a / b * b;
}
template <class T>
constexpr T RoundUp(T a, T b) {
  return CeilDiv(a, b) * b;
}

}  // namespace kvilt::contract
