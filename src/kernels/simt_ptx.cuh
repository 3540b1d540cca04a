// The machine in PTX, sm_80 and up; see simt.cuh. Nothing here includes a toolkit header.
//
// Warp-wide functions (Shuffle*, Any, Ballot, Mma*, LoadMatrix*, MoveMatrix) must be called by all
// 32 lanes. 16-bit pairs travel in a u32, the lower element in the lower half.
#pragma once

#include "types.h"

// Before a loop whose counter indexes registers.
#define KVILT_UNROLLED _Pragma("unroll")

namespace kvilt::simt {

using namespace contract;  // NOLINT: i32, u8, ... are this room's words too.

// ---------------------------------------------------------------- where a thread is

inline i32 ThreadIndex() { return static_cast<i32>(threadIdx.x); }
inline i32 BlockIndex() { return static_cast<i32>(blockIdx.x); }
inline i32 BlockThreads() { return static_cast<i32>(blockDim.x); }
inline i32 GridBlocks() { return static_cast<i32>(gridDim.x); }
inline i32 LaneIndex() { return ThreadIndex() & 31; }
inline i32 WarpIndex() { return ThreadIndex() >> 5; }

// The block's dynamic shared memory, aligned to 1024 bytes.
inline u8* SharedMemory() {
  extern __shared__ __align__(1024) u8 kvilt_shared[];
  return kvilt_shared;
}
inline u32 SharedAddress(const void* p) { return static_cast<u32>(__cvta_generic_to_shared(p)); }

// ---------------------------------------------------------------- barriers

inline void BlockSync() { asm volatile("bar.sync 0;" ::: "memory"); }
// Barrier `id` (1..15) of `threads` threads, whole warps.
inline void NamedSync(i32 id, i32 threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
inline void WarpSync() { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }

// ---------------------------------------------------------------- warps

inline u32 ShuffleXor(u32 v, i32 mask) {
  u32 r;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=r"(r) : "r"(v), "r"(mask));
  return r;
}
inline u32 Shuffle(u32 v, i32 lane) {
  u32 r;
  asm volatile("shfl.sync.idx.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=r"(r) : "r"(v), "r"(lane));
  return r;
}
inline u32 Bits(float v) { return __builtin_bit_cast(u32, v); }
inline float FloatOf(u32 v) { return __builtin_bit_cast(float, v); }
inline float ShuffleXor(float v, i32 mask) { return FloatOf(ShuffleXor(Bits(v), mask)); }
inline float Shuffle(float v, i32 lane) { return FloatOf(Shuffle(Bits(v), lane)); }
inline u32 Ballot(bool predicate) {
  u32 r;
  asm volatile("{.reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.ballot.b32 %0, p, 0xffffffff;}"
               : "=r"(r)
               : "r"(static_cast<u32>(predicate)));
  return r;
}
inline bool Any(bool predicate) { return Ballot(predicate) != 0; }

// ---------------------------------------------------------------- arithmetic

// Base 2, approximate (2 ulp), results below 2^-126 flushed; Exp2(-inf) = 0.
inline float Exp2(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
inline float Log2(float x) {
  float r;
  asm("lg2.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
inline float Reciprocal(float x) {
  float r;
  asm("rcp.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
// Rounded to nearest even, subnormals kept, never contracted.
inline float Multiply(float a, float b) {
  float r;
  asm("mul.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
inline float Add(float a, float b) {
  float r;
  asm("add.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
inline float Subtract(float a, float b) {
  float r;
  asm("sub.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
inline float Divide(float a, float b) {
  float r;
  asm("div.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
inline float Fma(float a, float b, float c) {
  float r;
  asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(r) : "f"(a), "f"(b), "f"(c));
  return r;
}
inline float Ceil(float x) {
  float r;
  asm("cvt.rpi.f32.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
// The larger; a NaN gives the other one.
inline float MaxFloat(float a, float b) {
  float r;
  asm("max.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}

// In f64: nearest whole number, ties to even; a * b + c rounded once.
inline double RoundToEven(double x) {
  double r;
  asm("cvt.rni.f64.f64 %0, %1;" : "=d"(r) : "d"(x));
  return r;
}
inline double FmaDouble(double a, double b, double c) {
  double r;
  asm("fma.rn.f64 %0, %1, %2, %3;" : "=d"(r) : "d"(a), "d"(b), "d"(c));
  return r;
}
inline double CeilDouble(double x) {
  double r;
  asm("cvt.rpi.f64.f64 %0, %1;" : "=d"(r) : "d"(x));
  return r;
}
// REQUIRES |x| <= pi for the accuracy of the library (2 ulp).
inline void SinCos(float x, float& sine, float& cosine) {
  sine = ::sinf(x);
  cosine = ::cosf(x);
}

inline u32 Permute(u32 a, u32 b, u32 selector) {
  u32 r;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(selector));
  return r;
}

// Pairs, nearest even. f16 beyond the range becomes infinite.
inline u32 PackF16(float low, float high) {
  u32 r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
inline u32 PackBF16(float low, float high) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
inline float LowF16(u32 pair) {
  float r;
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l;}" : "=f"(r) : "r"(pair));
  return r;
}
inline float HighF16(u32 pair) {
  float r;
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, h;}" : "=f"(r) : "r"(pair));
  return r;
}
inline u32 MultiplyF16(u32 a, u32 b) {
  u32 r;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}

#if __CUDA_ARCH__ >= 890
inline constexpr bool kNativeFp8 = true;
// Two fp8 bytes of the low half, exactly.
inline u32 F16FromE4M3(u32 bytes) {
  u32 r;
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.rn.f16x2.e4m3x2 %0, l;}" : "=r"(r) : "r"(bytes));
  return r;
}
#else
inline constexpr bool kNativeFp8 = false;
inline u32 F16FromE4M3(u32) { return 0; }
#endif

// ---------------------------------------------------------------- matrices

// d += a b, f32 sums. a: 16x16, row-major fragments; b: 16x8. Layouts of mma.m16n8k16 (PTX ISA):
// with g = lane / 4, t = lane % 4: a[0], a[1] are rows g, g+8, columns 2t, 2t+1; a[2], a[3] the
// same for columns + 8; b0, b1 are rows 2t, 2t+1 (+ 8) of column g; d[0], d[1] are row g, columns
// 2t, 2t+1; d[2], d[3] row g + 8.
inline void MmaF16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
inline void MmaBF16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
      "{%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Four 8x8 matrices of 16-bit elements; lane 8i + r gives the address of row r of matrix i (16
// bytes, aligned). r[i] of lane (g, t): row g, columns 2t, 2t+1 of matrix i.
inline void LoadMatrix4(u32 (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(row))
               : "memory");
}
// Each matrix transposed: r[i] of lane (g, t): rows 2t, 2t+1 of column g.
inline void LoadMatrix4Transposed(u32 (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(row))
               : "memory");
}
// An 8x8 matrix held as fragments, transposed.
inline u32 MoveMatrixTransposed(u32 v) {
  u32 r;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(v));
  return r;
}

// ---------------------------------------------------------------- copies to shared memory

// kBytes = 16, 8 or 4, both ends aligned to it; zeros instead when !present (source not read).
// The copy is there after a CopyWait that covers its CopyCommit, for the thread that issued it;
// for others after a barrier on top.
template <i32 kBytes>
inline void CopyAsync(void* shared, const void* global, bool present) {
  static_assert(kBytes == 16 || kBytes == 8 || kBytes == 4);
  const u32 size = present ? kBytes : 0;
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(shared)),
                 "l"(global), "r"(size)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(SharedAddress(shared)),
                 "l"(global), "n"(kBytes), "r"(size)
                 : "memory");
  }
}
inline void CopyCommit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until at most `pending` of the thread's latest commits are outstanding.
template <i32 kPending>
inline void CopyWait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// One store of 16 bytes, aligned.
inline void StoreFour(u32* to, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(SharedAddress(to)), "r"(a), "r"(b),
               "r"(c), "r"(d)
               : "memory");
}

// ---------------------------------------------------------------- memory, launches

// Cached in L2 alone, for what another kernel wrote: never through the read-only path.
template <class T>
inline T LoadL2(const T* p) {
  static_assert(sizeof(T) == 4);
  u32 r;
  asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(r) : "l"(p) : "memory");
  return __builtin_bit_cast(T, r);
}
// Sixteen bytes, aligned, that nobody writes meanwhile.
inline void LoadFour(const u32* p, u32 (&words)[4]) {
  asm volatile("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "l"(p));
}
// Sets *p to `value` if it is 0.
inline void StoreFirst(u32* p, u32 value) {
  asm volatile("{.reg .b32 old; atom.global.cas.b32 old, [%0], 0, %1;}" ::"l"(p), "r"(value)
               : "memory");
}
inline void AddGlobal(u64* p, u64 value) {
  asm volatile("red.global.add.u64 [%0], %1;" ::"l"(p), "l"(value) : "memory");
}

// Programmatic dependent launch: waits for the kernels before this one in the stream, with all they
// wrote; lets the next one start. No-ops where the arch or the launch has none.
inline void WaitForPrevious() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
inline void LetNextStart() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace kvilt::simt
