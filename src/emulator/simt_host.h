// The machine of src/kernels/simt_ptx.cuh in C++, name by name, for kernels that run under
// emulator.h. Contracts stand there; what is said here is where this machine differs.
//
// NaN: arithmetic gives the host's NaNs, where a GPU gives 0x7FFFFFFF.
// KVILT_EMULATE_NO_FP8, for a whole program: an arch before sm_89.
#pragma once

#include <cmath>

#include "src/contract/formats.h"
#include "src/contract/types.h"
#include "src/emulator/place.h"

#define KVILT_UNROLLED

namespace kvilt::emulator {

void IssueCopy(void* shared, const void* global, contract::i32 bytes, bool present);
void FinishCopies(contract::i32 pending);

}  // namespace kvilt::emulator

namespace kvilt::simt {

using namespace contract;  // NOLINT: i32, u8, ... are this room's words too.

// ---------------------------------------------------------------- where a thread is

inline i32 ThreadIndex() { return emulator::place->thread; }
inline i32 BlockIndex() { return emulator::place->block; }
inline i32 BlockThreads() { return emulator::place->threads; }
inline i32 GridBlocks() { return emulator::place->grid; }
inline i32 LaneIndex() { return ThreadIndex() & 31; }
inline i32 WarpIndex() { return ThreadIndex() >> 5; }

inline u8* SharedMemory() { return emulator::place->shared; }
// From the start of shared memory, which p must be in.
u32 SharedAddress(const void* p);

// ---------------------------------------------------------------- barriers

void BlockSync();
void NamedSync(i32 id, i32 threads);
void WarpSync();

// ---------------------------------------------------------------- warps

u32 ShuffleXor(u32 v, i32 mask);
u32 Shuffle(u32 v, i32 lane);
inline u32 Bits(float v) { return __builtin_bit_cast(u32, v); }
inline float FloatOf(u32 v) { return __builtin_bit_cast(float, v); }
inline float ShuffleXor(float v, i32 mask) { return FloatOf(ShuffleXor(Bits(v), mask)); }
inline float Shuffle(float v, i32 lane) { return FloatOf(Shuffle(Bits(v), lane)); }
u32 Ballot(bool predicate);
inline bool Any(bool predicate) { return Ballot(predicate) != 0; }

// ---------------------------------------------------------------- arithmetic
// This room compiles with -ffp-contract=off, and so must a kernel that runs on it.

inline float Exp2(float x) {
  const float r = std::exp2(x);
  return MagnitudeBits(r) < kF32MinNormal ? 0.0f : r;
}
inline float Log2(float x) { return std::log2(x); }
inline float Reciprocal(float x) { return 1.0f / x; }
inline float Multiply(float a, float b) { return a * b; }
inline float Add(float a, float b) { return a + b; }
inline float Subtract(float a, float b) { return a - b; }
inline float Divide(float a, float b) { return a / b; }
inline float Fma(float a, float b, float c) { return std::fma(a, b, c); }
inline float Ceil(float x) { return std::ceil(x); }
inline float MaxFloat(float a, float b) {
  if (IsNan(a)) return b;
  if (IsNan(b)) return a;
  return a == b ? FloatOf(Bits(a) & Bits(b)) : (a > b ? a : b);  // +0 is larger than -0.
}

inline double RoundToEven(double x) { return std::nearbyint(x); }
inline double CeilDouble(double x) { return std::ceil(x); }
inline double FmaDouble(double a, double b, double c) { return std::fma(a, b, c); }
inline void SinCos(float x, float& sine, float& cosine) {
  sine = std::sin(x);
  cosine = std::cos(x);
}

inline u32 Permute(u32 a, u32 b, u32 selector) {
  const u64 bytes = static_cast<u64>(b) << 32 | a;
  u32 r = 0;
  for (u32 i = 0; i < 4; ++i) {
    const u32 select = selector >> (4 * i);
    const u32 byte = static_cast<u32>(bytes >> (8 * (select & 7u))) & 0xFFu;
    const u32 sign = (byte >> 7) * 0xFFu;
    r |= ((select & 8u) != 0 ? sign : byte) << (8 * i);
  }
  return r;
}

inline u32 PackF16(float low, float high) {
  return static_cast<u32>(EncodeF16(high)) << 16 | EncodeF16(low);
}
inline u32 PackBF16(float low, float high) {
  return static_cast<u32>(EncodeBF16(high)) << 16 | EncodeBF16(low);
}
inline float LowF16(u32 pair) { return DecodeF16(static_cast<u16>(pair)); }
inline float HighF16(u32 pair) { return DecodeF16(static_cast<u16>(pair >> 16)); }
// A product of two f16 is exact in f32, so this rounds once.
inline u32 MultiplyF16(u32 a, u32 b) {
  return PackF16(LowF16(a) * LowF16(b), HighF16(a) * HighF16(b));
}

#ifndef KVILT_EMULATE_NO_FP8
inline constexpr bool kNativeFp8 = true;
inline u32 F16FromE4M3(u32 bytes) {
  const auto half = [](u32 byte) {
    const u32 wide = EncodeF16(DecodeE4M3(static_cast<u8>(byte)));
    return (byte & 0x7Fu) == 0x7Fu ? 0x7FFFu : wide;
  };
  return half(bytes >> 8 & 0xFFu) << 16 | half(bytes & 0xFFu);
}
#else
inline constexpr bool kNativeFp8 = false;
inline u32 F16FromE4M3(u32) { return 0; }
#endif

// ---------------------------------------------------------------- matrices
// Products are exact, their sums f32; a GPU's sums differ in the last bits.

void MmaF16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1);
void MmaBF16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1);
void LoadMatrix4(u32 (&r)[4], const void* row);
void LoadMatrix4Transposed(u32 (&r)[4], const void* row);
u32 MoveMatrixTransposed(u32 v);

// ---------------------------------------------------------------- copies to shared memory
// Done at the CopyWait that covers them; until then the target holds 0xFF bytes.

template <i32 kBytes>
inline void CopyAsync(void* shared, const void* global, bool present) {
  static_assert(kBytes == 16 || kBytes == 8 || kBytes == 4);
  emulator::IssueCopy(shared, global, kBytes, present);
}
void CopyCommit();
template <i32 kPending>
inline void CopyWait() {
  emulator::FinishCopies(kPending);
}

// ---------------------------------------------------------------- memory, launches
// Atomic, so that launches on several OS threads may share what they write.

inline void StoreFour(u32* to, u32 a, u32 b, u32 c, u32 d) {
  to[0] = a;
  to[1] = b;
  to[2] = c;
  to[3] = d;
}

template <class T>
inline T LoadL2(const T* p) {
  static_assert(sizeof(T) == 4);
  T r;
  __atomic_load(const_cast<T*>(p), &r, __ATOMIC_RELAXED);
  return r;
}
inline void LoadFour(const u32* p, u32 (&words)[4]) {
  for (i32 i = 0; i < 4; ++i) words[i] = p[i];
}
inline void StoreFirst(u32* p, u32 value) {
  u32 expected = 0;
  __atomic_compare_exchange_n(p, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}
inline void AddGlobal(u64* p, u64 value) { __atomic_fetch_add(p, value, __ATOMIC_RELAXED); }

inline void WaitForPrevious() {}
inline void LetNextStart() {}

}  // namespace kvilt::simt
