// Logits and the online softmax of one row against one tile (contract/softmax.h). Compiled once
// per Highway target; the logit options serve every body.
#include "hwy/highway.h"
#include "src/contract/softmax.h"
#include "src/cpu/attention_body.h"
#include "src/cpu/f32/decode-inl.h"
#include "src/cpu/unroll.h"

#if defined(KVILT_CPU_F32_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVILT_CPU_F32_SOFTMAX_INL_H_
#undef KVILT_CPU_F32_SOFTMAX_INL_H_
#else
#define KVILT_CPU_F32_SOFTMAX_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace kvilt::cpu::f32 {
namespace HWY_NAMESPACE {

// 2^f for f in [-1/2, 1/2]: Cephes' polynomial of degree 6, relative error 2e-8 before rounding.
// NaN passes through.
HWY_INLINE VF Exp2Fraction(VF f) {
  const DF df;
  VF p = hn::Set(df, 1.535336188319500e-4f);
  p = hn::MulAdd(p, f, hn::Set(df, 1.339887440266574e-3f));
  p = hn::MulAdd(p, f, hn::Set(df, 9.618437357674640e-3f));
  p = hn::MulAdd(p, f, hn::Set(df, 5.550332471162809e-2f));
  p = hn::MulAdd(p, f, hn::Set(df, 2.402264791363012e-1f));
  p = hn::MulAdd(p, f, hn::Set(df, 6.931472028550421e-1f));
  return hn::MulAdd(p, f, hn::Set(df, 1.0f));
}

// p * 2^k for integers k in [-126, 127].
HWY_INLINE VF ScaleByPow2(VF p, VF k) {
  const DI di;
  const auto exponent = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, k), hn::Set(di, 127)));
  return hn::Mul(p, hn::BitCast(DF(), exponent));
}

// 2^x for x in [-126, 126]. NaN passes through.
HWY_INLINE VF Exp2InRange(VF x) {
  const VF whole = hn::Round(x);
  return ScaleByPow2(Exp2Fraction(hn::Sub(x, whole)), whole);
}

// 2^(x - reference); 0 below about 2^-126, NaN for NaN. REQUIRES an integer reference >= x.
// x is parted before the reference goes off, both exactly, so that the bits of the result differ
// between references by a power of two only: a split does not change how weights round.
HWY_INLINE VF Exp2Against(VF x, VF reference) {
  const VF floor = hn::Set(DF(), -126.0f);
  const VF whole = hn::Round(x);
  const VF gap = hn::Sub(whole, reference);
  const auto is_small = hn::Lt(gap, floor);
  const VF p = Exp2Fraction(hn::Sub(x, whole));
  return hn::IfThenZeroElse(is_small, ScaleByPow2(p, hn::IfThenElse(is_small, floor, gap)));
}

// Cephes' tanhf below 0.625; 1 - 2 / (e^2|z| + 1) above, which saturates in f32 before |z| = 10.
HWY_INLINE VF Tanh(VF z) {
  const DF df;
  const VF magnitude = hn::Abs(z);
  const VF square = hn::Mul(z, z);
  VF p = hn::Set(df, -5.70498872745e-3f);
  p = hn::MulAdd(p, square, hn::Set(df, 2.06390887954e-2f));
  p = hn::MulAdd(p, square, hn::Set(df, -5.37397155531e-2f));
  p = hn::MulAdd(p, square, hn::Set(df, 1.33314422036e-1f));
  p = hn::MulAdd(p, square, hn::Set(df, -3.33332819422e-1f));
  const VF near_zero = hn::MulAdd(hn::Mul(p, square), z, z);
  const VF limit = hn::Set(df, 10.0f);
  const VF capped = hn::IfThenElse(hn::Gt(magnitude, limit), limit, magnitude);
  const VF e = Exp2InRange(hn::Mul(capped, hn::Set(df, 2.0f * contract::kLog2E)));
  const VF one = hn::Set(df, 1.0f);
  const VF far = hn::Sub(one, hn::Div(hn::Set(df, 2.0f), hn::Add(e, one)));
  return hn::IfThenElse(hn::Lt(magnitude, hn::Set(df, 0.625f)), near_zero, hn::CopySign(far, z));
}

// Raw scores of 64 keys to natural logits, in place: scale, soft cap, ALiBi.
inline void ApplyLogitOptions(const LogitOptions& options, const RowRef& row, float* scores) {
  const DF df;
  const int lanes = static_cast<int>(hn::Lanes(df));
  const VF scale = hn::Set(df, options.scale);
  const VF cap = hn::Set(df, options.soft_cap);
  const VF cap_inverse = hn::Set(df, options.soft_cap > 0.0f ? 1.0f / options.soft_cap : 0.0f);
  const VF slope = hn::Set(df, row.slope);
  for (int t = 0; t < kTileKeys; t += lanes) {
    const VF distance = hn::Iota(df, row.first_distance + static_cast<float>(t));
    const VF bias = hn::Mul(slope, distance);
    VF x = hn::Mul(hn::Load(df, scores + t), scale);
    if (options.bias_before_cap) x = hn::Add(x, bias);
    if (options.soft_cap > 0.0f) x = hn::Mul(cap, Tanh(hn::Mul(x, cap_inverse)));
    if (!options.bias_before_cap) x = hn::Add(x, bias);
    hn::Store(x, df, scores + t);
  }
}

HWY_INLINE hn::Mask<DF> VisibleLanes(u64 visible, int lane) {
  alignas(8) u64 bits[1] = {visible >> lane};
  return hn::LoadMaskBits(DF(), reinterpret_cast<const uint8_t*>(bits));
}

// Scores (times `scale` = logits in the log2 domain) become probabilities against the row's new
// reference; updates the state. Returns the factor that the output must be multiplied by.
inline float SoftmaxRow(float scale, u64 visible, float* scores, float* state) {
  const DF df;
  const int lanes = static_cast<int>(hn::Lanes(df));
  const VF minus_infinity = hn::Set(df, -__builtin_inff());
  const VF factor = hn::Set(df, scale);
  VF top = minus_infinity;
  for (int t = 0; t < kTileKeys; t += lanes) {
    const VF x = hn::IfThenElse(VisibleLanes(visible, t), hn::Mul(hn::Load(df, scores + t), factor),
                                minus_infinity);
    top = hn::IfThenElse(hn::Gt(x, top), x, top);  // A NaN does not count here, but as p below.
    hn::Store(x, df, scores + t);
  }
  const float tile_reference = __builtin_ceilf(hn::GetLane(hn::MaxOfLanes(df, top)));
  const float reference = contract::Max(state[contract::kStateReference], tile_reference);
  const VF shift = hn::Set(df, reference == -__builtin_inff() ? 0.0f : reference);
  VF sum = hn::Zero(df);
  for (int t = 0; t < kTileKeys; t += lanes) {
    const VF p = Exp2Against(hn::Load(df, scores + t), shift);
    sum = hn::Add(sum, p);
    hn::Store(p, df, scores + t);
  }
  const float move = contract::MoveFactor(state[contract::kStateReference], reference);
  state[contract::kStateReference] = reference;
  state[contract::kStateSum] =
      state[contract::kStateSum] * move + hn::GetLane(hn::SumOfLanes(df, sum));
  state[contract::kStateWeight] = state[contract::kStateSum];
  return move;
}

}  // namespace HWY_NAMESPACE
}  // namespace kvilt::cpu::f32
HWY_AFTER_NAMESPACE();

#endif  // include guard
