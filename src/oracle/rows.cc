#include "src/oracle/rows.h"

#include <cmath>
#include <numbers>

#include "src/oracle/decode.h"

namespace kvilt::oracle {
namespace {

bool Bit(const TensorView& bits, std::int64_t first_byte, std::int64_t index) {
  const auto* bytes = static_cast<const std::uint8_t*>(bits.data);
  return (bytes[first_byte + index / 8] >> (index % 8)) % 2 == 1;
}

// Radians per position of pair `pair`.
double Frequency(const Rope& rope, std::int64_t head_dim, std::int64_t pair) {
  const std::int64_t rotary = rope.rotary_dim == 0 ? head_dim : rope.rotary_dim;
  const bool proportional = rope.frequency == RopeFrequency::kProportional;
  if (pair >= rotary / 2) return 0;
  const double exponent =
      -2.0 * static_cast<double>(pair) / static_cast<double>(proportional ? head_dim : rotary);
  const double plain = std::pow(rope.theta, exponent);
  if (!rope.llama31) return plain / rope.scale;
  // Wavelengths shorter than original / high keep their frequency, those longer than
  // original / low are slowed, those between are blended.
  const double wavelength = 2 * std::numbers::pi / plain;
  const double ratio = rope.llama31->original_length / wavelength;
  const double low = rope.llama31->low_freq_factor, high = rope.llama31->high_freq_factor;
  if (ratio >= high) return plain;
  if (ratio <= low) return plain / rope.scale;
  const double smooth = (ratio - low) / (high - low);
  return (1 - smooth) * plain / rope.scale + smooth * plain;
}

}  // namespace

std::int64_t QueryHeadDim(const AttentionRequest& request) {
  return request.q.shape[2] * (request.q.dtype == DType::kNVFP4 ? 2 : 1);
}

std::vector<double> QueryRow(const AttentionRequest& request, std::int64_t row, std::int64_t head) {
  const std::byte* from = At(request.q, {row, head, 0});
  if (request.q.dtype != DType::kNVFP4) {
    return DecodeRow(request.q.dtype, from, request.q.shape[2]);
  }
  return DecodeNvfp4Row(from, QueryHeadDim(request), [&](std::int64_t block) {
    return At(request.q_scales, {row, head, block});
  });
}

std::int64_t RowPosition(const AttentionRequest& request, const Lengths& lengths, std::int64_t i) {
  if (!request.q_positions.defined()) return i + lengths.delta();
  return request.q_positions[request.q_indptr[lengths.request] + i];
}

std::int64_t KeyPosition(const AttentionRequest& request, const Lengths& lengths, std::int64_t j) {
  if (!request.rope || !request.rope->key_positions.defined()) return j;
  return request.rope->key_positions[lengths.keys_before + j];
}

bool Sees(const AttentionRequest& request, const Lengths& lengths, std::int64_t i, std::int64_t j) {
  const std::int64_t p = RowPosition(request, lengths, i);
  // Positions are far from the limits of 64 bits, windows need not be.
  if (request.window_left >= 0 && p - j > request.window_left) return false;
  if (request.window_right >= 0 && j - p > request.window_right) return false;
  switch (request.mask) {
    case MaskMode::kCausal:
      return j <= i + lengths.delta();
    case MaskMode::kCustom:
      return Bit(request.mask_bits, lengths.mask_byte, i * lengths.kv_len + j);
    case MaskMode::kTree: {
      const std::int64_t column = j - lengths.delta();
      return column < 0 || Bit(request.mask_bits, lengths.mask_byte, i * lengths.q_len + column);
    }
    default:
      return true;
  }
}

double Score(const AttentionRequest& request, const Lengths& lengths, std::int64_t head,
             std::int64_t i, std::int64_t j, double dot) {
  const double sm_scale = request.sm_scale
                              ? static_cast<double>(*request.sm_scale)
                              : 1 / std::sqrt(static_cast<double>(QueryHeadDim(request)));
  double x = sm_scale * request.q_scale * dot;
  double bias = 0;
  if (request.alibi) {
    const TensorView& slopes = request.alibi->slopes;
    const double slope = static_cast<const float*>(slopes.data)[head * slopes.stride[0]];
    const bool row_index = request.alibi->origin == AlibiOrigin::kRowIndex;
    bias = slope * static_cast<double>(j - (row_index ? i : i + lengths.delta()));
  }
  if (request.bias_before_cap) x += bias;
  const double cap = request.logits_soft_cap;
  if (cap > 0) x = cap * std::tanh(x / cap);
  if (!request.bias_before_cap) x += bias;
  return x;
}

std::vector<double> Frequencies(const AttentionRequest& request) {
  std::vector<double> frequencies;
  if (!request.rope) return frequencies;
  const Rope& rope = *request.rope;
  const std::int64_t head_dim = QueryHeadDim(request);
  // Proportional frequencies belong to pairs over the whole head; those past rotary_dim / 2 rest.
  const bool whole = rope.frequency == RopeFrequency::kProportional || rope.rotary_dim == 0;
  const std::int64_t r = whole ? head_dim : rope.rotary_dim;
  for (std::int64_t pair = 0; pair < r / 2; ++pair) {
    frequencies.push_back(Frequency(rope, head_dim, pair));
  }
  return frequencies;
}

void Rotate(const AttentionRequest& request, const std::vector<double>& frequencies,
            std::int64_t position, std::vector<double>& row) {
  for (std::size_t pair = 0; pair < frequencies.size(); ++pair) {
    const bool half = request.rope->pairing == RopePairing::kHalf;
    double& a = row[half ? pair : 2 * pair];
    double& b = row[half ? pair + frequencies.size() : 2 * pair + 1];
    const double angle = static_cast<double>(position) * frequencies[pair];
    const double c = std::cos(angle), s = std::sin(angle);
    const double rotated = a * c - b * s;
    b = b * c + a * s;
    a = rotated;
  }
}

}  // namespace kvilt::oracle
