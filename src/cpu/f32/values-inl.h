// output = output * factor + sum_t p[t] * value row t, in f32. The tile's own sum begins at zero,
// so that an output takes one rounding per tile, not one per key (kFoldKeys in item_scratch.h).
// Compiled once per Highway target.
#include "hwy/highway.h"
#include "src/cpu/attention_body.h"
#include "src/cpu/f32/decode-inl.h"
#include "src/cpu/unroll.h"

#if defined(KVILT_CPU_F32_VALUES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVILT_CPU_F32_VALUES_INL_H_
#undef KVILT_CPU_F32_VALUES_INL_H_
#else
#define KVILT_CPU_F32_VALUES_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace kvilt::cpu::f32 {
namespace HWY_NAMESPACE {

// kRows rows x kColumns vectors of the head dim, in registers over the keys of the tile.
// p[r * kTileKeys + t]; keys ascending, so a row's sums do not depend on its neighbours.
template <int kRows, int kColumns>
HWY_INLINE void AddValues(const float* p, const float* factors, float* const* outputs,
                          const float* values, int dim, int column, int key_begin, int key_end) {
  const DF df;
  const int lanes = static_cast<int>(hn::Lanes(df));
  VF sums[kRows][kColumns];
  KVILT_UNROLL
  for (int r = 0; r < kRows; ++r) {
    KVILT_UNROLL
    for (int c = 0; c < kColumns; ++c) sums[r][c] = hn::Zero(df);
  }
  for (int t = key_begin; t < key_end; ++t) {
    VF v[kColumns];
    KVILT_UNROLL
    for (int c = 0; c < kColumns; ++c) v[c] = hn::Load(df, values + t * dim + column + c * lanes);
    KVILT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const VF weight = hn::Set(df, p[r * kTileKeys + t]);
      KVILT_UNROLL
      for (int c = 0; c < kColumns; ++c) sums[r][c] = hn::MulAdd(weight, v[c], sums[r][c]);
    }
  }
  KVILT_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const VF factor = hn::Set(df, factors[r]);
    KVILT_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      float* const output = outputs[r] + column + c * lanes;
      hn::Store(hn::MulAdd(factor, hn::Load(df, output), sums[r][c]), df, output);
    }
  }
}

template <int kRows, int kColumns>
HWY_INLINE void AddAllValues(const float* p, const float* factors, float* const* outputs,
                             const float* values, int dim, int key_begin, int key_end) {
  const int lanes = static_cast<int>(hn::Lanes(DF()));
  int column = 0;
  for (; column + kColumns * lanes <= dim; column += kColumns * lanes) {
    AddValues<kRows, kColumns>(p, factors, outputs, values, dim, column, key_begin, key_end);
  }
  for (; column < dim; column += lanes) {
    AddValues<kRows, 1>(p, factors, outputs, values, dim, column, key_begin, key_end);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvilt::cpu::f32
HWY_AFTER_NAMESPACE();

#endif  // include guard
