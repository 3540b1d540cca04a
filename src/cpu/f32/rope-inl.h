// Rotates f32 rows in place. Compiled once per Highway target.
#include "hwy/highway.h"
#include "src/cpu/attention_body.h"
#include "src/cpu/f32/decode-inl.h"

#if defined(KVILT_CPU_F32_ROPE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVILT_CPU_F32_ROPE_INL_H_
#undef KVILT_CPU_F32_ROPE_INL_H_
#else
#define KVILT_CPU_F32_ROPE_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace kvilt::cpu::f32 {
namespace HWY_NAMESPACE {

HWY_INLINE void RotatePair(float& first, float& second, float cosine, float sine) {
  const float a = first;
  const float b = second;
  first = a * cosine - b * sine;
  second = a * sine + b * cosine;
}

// Pairs (i, i + half).
inline void RotateHalves(float* row, int half, const float* cosines, const float* sines) {
  const DF df;
  const int lanes = static_cast<int>(hn::Lanes(df));
  int i = 0;
  for (; i + lanes <= half; i += lanes) {
    const VF cosine = hn::LoadU(df, cosines + i);
    const VF sine = hn::LoadU(df, sines + i);
    const VF a = hn::LoadU(df, row + i);
    const VF b = hn::LoadU(df, row + half + i);
    hn::StoreU(hn::Sub(hn::Mul(a, cosine), hn::Mul(b, sine)), df, row + i);
    hn::StoreU(hn::Add(hn::Mul(a, sine), hn::Mul(b, cosine)), df, row + half + i);
  }
  for (; i < half; ++i) RotatePair(row[i], row[half + i], cosines[i], sines[i]);
}

inline void RotateRows(float* rows, i64 stride, int count, const Rotation& rotation) {
  const int half = rotation.rotary_dim / 2;
  for (int r = 0; r < count; ++r) {
    float* row = rows + r * stride;
    const float* cosines = rotation.cosines + r * rotation.stride;
    const float* sines = rotation.sines + r * rotation.stride;
    if (rotation.interleaved) {
      for (int i = 0; i < half; ++i) RotatePair(row[2 * i], row[2 * i + 1], cosines[i], sines[i]);
    } else {
      RotateHalves(row, half, cosines, sines);
    }
  }
}

// cos and sin of a + b, [cosines, sines][pairs] each, in f64, to f32.
inline void MultiplyAngles(const double* a, const double* b, int pairs, float* cosines,
                           float* sines) {
  const hn::CappedTag<double, 8> dd;
  const hn::Rebind<float, decltype(dd)> df;
  const int lanes = static_cast<int>(hn::Lanes(dd));
  int i = 0;
  for (; i + lanes <= pairs; i += lanes) {
    const auto a_cos = hn::LoadU(dd, a + i);
    const auto a_sin = hn::LoadU(dd, a + pairs + i);
    const auto b_cos = hn::LoadU(dd, b + i);
    const auto b_sin = hn::LoadU(dd, b + pairs + i);
    const auto cosine = hn::Sub(hn::Mul(a_cos, b_cos), hn::Mul(a_sin, b_sin));
    const auto sine = hn::Add(hn::Mul(a_cos, b_sin), hn::Mul(a_sin, b_cos));
    hn::StoreU(hn::DemoteTo(df, cosine), df, cosines + i);
    hn::StoreU(hn::DemoteTo(df, sine), df, sines + i);
  }
  for (; i < pairs; ++i) {
    cosines[i] = static_cast<float>(a[i] * b[i] - a[pairs + i] * b[pairs + i]);
    sines[i] = static_cast<float>(a[i] * b[pairs + i] + a[pairs + i] * b[i]);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvilt::cpu::f32
HWY_AFTER_NAMESPACE();

#endif  // include guard
