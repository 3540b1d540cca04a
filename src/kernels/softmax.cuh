// Scores to weights: scale, soft cap, ALiBi, masks, and the online softmax of contract/softmax.h.
#pragma once

#include "softmax.h"
#include "tile_rows.cuh"

namespace kvilt::kernels {

// What all scores of an item go through, uniform over the block.
struct ScoreForm {
  float soft_cap = 0;
  bool bias = false;
  bool bias_before_cap = false;
  bool bits = false;  // Custom or tree mask.

  explicit ScoreForm(const AttentionParams& params)
      : soft_cap(params.soft_cap),
        bias(params.alibi_slopes != nullptr),
        bias_before_cap(params.bias_before_cap != 0),
        bits(params.visibility.mask == static_cast<i32>(contract::Mask::kCustom) ||
             params.visibility.mask == static_cast<i32>(contract::Mask::kTree)) {}
  bool plain() const { return soft_cap == 0 && !bias; }
};

// c tanh(x / c), without the library: 1 - 2 / (e^2y + 1) is right at both ends but cancels near 0,
// where a large cap would make 2^-24 of it as large as the score; there the series is exact enough
// (its next term is below 1e-11).
inline float SoftCap(float x, float cap) {
  const float y = x / cap;
  if (contract::Magnitude(y) < 0.125f) {
    const float z = y * y;
    const float series = -1.0f / 3 + z * (2.0f / 15 + z * (-17.0f / 315 + z * (62.0f / 2835)));
    return x + x * (z * series);
  }
  const float power = Exp2(y * (2 * contract::kLog2E));
  return cap * (1.0f - 2.0f * Reciprocal(power + 1.0f));
}

// A logit (natural units, without bias) to the score in the log2 domain.
inline float Score(const ScoreForm& form, float logit, float bias) {
  if (form.bias && form.bias_before_cap) logit += bias;
  if (form.soft_cap != 0) logit = SoftCap(logit, form.soft_cap);
  if (form.bias && !form.bias_before_cap) logit += bias;
  return logit * contract::kLog2E;
}

inline constexpr float kMinusInfinity = __builtin_bit_cast(float, 0xFF800000u);

// References lie so far below the largest score: weights up to 2^8, so that f16 holds those down to
// 2^-32 of the largest.
template <bool kBF16>
inline constexpr float kReferenceBelow = kBF16 ? 0.0f : 8.0f;

// A row's running softmax; `weight` and `sum` are this lane's share.
struct RowSoftmax {
  float reference = kMinusInfinity;
  float weight = 0;
  float sum = 0;

  // Of the four lanes that share the row.
  void AddLanes() {
    for (i32 mask = 1; mask <= 2; mask *= 2) {
      weight += ShuffleXor(weight, mask);
      sum += ShuffleXor(sum, mask);
    }
  }
};

}  // namespace kvilt::kernels
