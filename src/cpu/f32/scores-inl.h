// Scores of query rows against a key tile: dot products of f32 rows. Compiled once per target.
//
//   key tile [64][dim], query row [dim], dim padded with zeros to a multiple of 16
//
//   kRows rows x 4 keys at a time: one accumulator each, so a row's sums have the same order
//   whatever rows are beside it.
#include "hwy/highway.h"
#include "src/cpu/attention_body.h"
#include "src/cpu/f32/decode-inl.h"
#include "src/cpu/unroll.h"

#if defined(KVILT_CPU_F32_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVILT_CPU_F32_SCORES_INL_H_
#undef KVILT_CPU_F32_SCORES_INL_H_
#else
#define KVILT_CPU_F32_SCORES_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace kvilt::cpu::f32 {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
// Adds the 128-bit blocks of v.
template <class D, class V>
HWY_INLINE void StoreBlockSum(D d, V v, float* sums) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    hn::StoreU(v, d, sums);
  } else {
    const hn::Half<D> half;
    StoreBlockSum(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), sums);
  }
}
#endif

// The sums of the lanes of a, b, c, d, to four floats.
HWY_INLINE void StoreSums(VF a, VF b, VF c, VF d, float* sums) {
#if HWY_TARGET == HWY_SCALAR
  sums[0] = hn::GetLane(a);
  sums[1] = hn::GetLane(b);
  sums[2] = hn::GetLane(c);
  sums[3] = hn::GetLane(d);
#else
  const DF df;
  const hn::Repartition<uint64_t, DF> d64;
  const VF ab = hn::Add(hn::InterleaveLower(df, a, b), hn::InterleaveUpper(df, a, b));
  const VF cd = hn::Add(hn::InterleaveLower(df, c, d), hn::InterleaveUpper(df, c, d));
  const auto ab64 = hn::BitCast(d64, ab);
  const auto cd64 = hn::BitCast(d64, cd);
  const VF blocks = hn::Add(hn::BitCast(df, hn::InterleaveLower(d64, ab64, cd64)),
                            hn::BitCast(df, hn::InterleaveUpper(d64, ab64, cd64)));
  StoreBlockSum(df, blocks, sums);
#endif
}

// scores[r * kTileKeys + t] for t in [key_begin, key_end), multiples of 4.
template <int kRows>
HWY_INLINE void ScoreRows(const float* const* queries, const float* keys, int dim, int key_begin,
                          int key_end, float* scores) {
  const DF df;
  const int lanes = static_cast<int>(hn::Lanes(df));
  for (int t = key_begin; t < key_end; t += 4) {
    const float* k0 = keys + t * dim;
    const float* k1 = k0 + dim;
    const float* k2 = k1 + dim;
    const float* k3 = k2 + dim;
    VF sums[kRows][4];
    KVILT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      sums[r][0] = sums[r][1] = sums[r][2] = sums[r][3] = hn::Zero(df);
    }
    for (int i = 0; i < dim; i += lanes) {
      const VF v0 = hn::Load(df, k0 + i);
      const VF v1 = hn::Load(df, k1 + i);
      const VF v2 = hn::Load(df, k2 + i);
      const VF v3 = hn::Load(df, k3 + i);
      KVILT_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const VF q = hn::Load(df, queries[r] + i);
        sums[r][0] = hn::MulAdd(q, v0, sums[r][0]);
        sums[r][1] = hn::MulAdd(q, v1, sums[r][1]);
        sums[r][2] = hn::MulAdd(q, v2, sums[r][2]);
        sums[r][3] = hn::MulAdd(q, v3, sums[r][3]);
      }
    }
    KVILT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      StoreSums(sums[r][0], sums[r][1], sums[r][2], sums[r][3], scores + r * kTileKeys + t);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvilt::cpu::f32
HWY_AFTER_NAMESPACE();

#endif  // include guard
