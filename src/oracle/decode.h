// Stored bytes to float64, by tables and ldexp. The oracle's own reading of SEMANTICS section 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kvilt/kv_cache.h"
#include "kvilt/tensor.h"

namespace kvilt::oracle {

// One storage element of a float dtype; `bits` holds its bytes, little-endian.
double DecodeFloat(DType dtype, std::uint32_t bits);
// The 4-bit code: sign, then 0, 0.5, 1, 1.5, 2, 3, 4, 6.
double DecodeE2M1(int code);

// The address of an element, strides counted in storage elements.
const std::byte* At(const TensorView& view, const std::vector<std::int64_t>& index);

// A dense row of a float dtype at `from`.
std::vector<double> DecodeRow(DType dtype, const std::byte* from, std::int64_t elements);
// A row of NVFP4: `scale_at(s)` gives the address of the scale of block s.
template <class ScaleAt>
std::vector<double> DecodeNvfp4Row(const std::byte* from, std::int64_t head_dim, ScaleAt scale_at) {
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(head_dim));
  for (std::int64_t s = 0; s < head_dim / 16; ++s) {
    const double scale = DecodeFloat(DType::kE4M3, static_cast<std::uint32_t>(*scale_at(s)));
    for (std::int64_t byte = 8 * s; byte < 8 * (s + 1); ++byte) {
      const int codes = static_cast<int>(from[byte]);
      values.push_back(DecodeE2M1(codes % 16) * scale);
      values.push_back(DecodeE2M1(codes / 16) * scale);
    }
  }
  return values;
}

}  // namespace kvilt::oracle
