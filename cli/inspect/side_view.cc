#include "cli/inspect/side_view.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace kvilt::cli {
namespace {

// A small float of `mantissa_bits`, without sign; special values are the caller's.
double SmallFloat(unsigned magnitude, int mantissa_bits, int bias) {
  const unsigned exponent = magnitude >> mantissa_bits;
  const double mantissa = static_cast<double>(magnitude & ((1u << mantissa_bits) - 1));
  const double unit = std::ldexp(1.0, -mantissa_bits);
  if (exponent == 0) return std::ldexp(mantissa * unit, 1 - bias);
  return std::ldexp(1.0 + mantissa * unit, static_cast<int>(exponent) - bias);
}

double Ieee(unsigned bits, int exponent_bits, int mantissa_bits) {
  const unsigned sign = bits >> (exponent_bits + mantissa_bits);
  const unsigned magnitude = bits & ((1u << (exponent_bits + mantissa_bits)) - 1);
  const unsigned infinity = ((1u << exponent_bits) - 1) << mantissa_bits;
  double value = SmallFloat(magnitude, mantissa_bits, (1 << (exponent_bits - 1)) - 1);
  if (magnitude == infinity) value = std::numeric_limits<double>::infinity();
  if (magnitude > infinity) value = std::numeric_limits<double>::quiet_NaN();
  return sign ? -value : value;
}

std::array<double, 256> MakeE4M3() {
  std::array<double, 256> table;
  for (unsigned i = 0; i < 256; ++i) {
    const double value =
        (i & 0x7F) == 0x7F ? std::numeric_limits<double>::quiet_NaN() : SmallFloat(i & 0x7F, 3, 7);
    table[i] = i & 0x80 ? -value : value;
  }
  return table;
}

std::array<double, 256> MakeE5M2() {
  std::array<double, 256> table;
  for (unsigned i = 0; i < 256; ++i) table[i] = Ieee(i, 5, 2);
  return table;
}

const std::array<double, 256>& E4M3() {
  static const std::array<double, 256> table = MakeE4M3();
  return table;
}

const std::array<double, 256>& E5M2() {
  static const std::array<double, 256> table = MakeE5M2();
  return table;
}

double E2M1(unsigned code) {
  constexpr double kValues[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return code & 8 ? -kValues[code & 7] : kValues[code & 7];
}

template <class T>
T LoadAs(const std::uint8_t* bytes, std::int64_t i) {
  T value;
  std::memcpy(&value, bytes + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

}  // namespace

double DecodeScaleByte(std::uint8_t byte) { return E4M3()[byte]; }

bool SideReadable(const CacheSide& side) {
  if (side.scale_layout != ScaleLayout::kInterleaved4) return true;
  const int token_axis = side.layout == KvLayout::kHND ? 2 : 1;
  return side.data.rank == 4 && side.data.shape[token_axis] % 4 == 0 &&
         side.scales.shape[3] % 4 == 0;
}

SideView::SideView(const CacheSide& side)
    : side_(side),
      paged_(side.data.rank == 4),
      token_axis_((paged_ ? 1 : 0) + (side.layout == KvLayout::kHND ? 1 : 0)),
      head_axis_((paged_ ? 1 : 0) + (side.layout == KvLayout::kHND ? 0 : 1)),
      heads_(side.data.shape[head_axis_]),
      head_dim_(side.data.shape[side.data.rank - 1] * (side.data.dtype == DType::kNVFP4 ? 2 : 1)) {}

double SideView::global(std::int64_t head) const {
  if (side_.global.array == nullptr) return side_.global.value;
  return side_.global.array[side_.global.array_size == 1 ? 0 : head];
}

const std::uint8_t* SideView::At(const TensorView& view, std::int64_t page, std::int64_t token,
                                 std::int64_t head) const {
  const std::int64_t offset = (paged_ ? page * view.stride[0] : 0) +
                              token * view.stride[token_axis_] + head * view.stride[head_axis_];
  return static_cast<const std::uint8_t*>(view.data) + offset * StorageBytes(view.dtype);
}

std::uint8_t SideView::Scale(std::int64_t page, std::int64_t token, std::int64_t head,
                             std::int64_t block) const {
  if (side_.scale_layout == ScaleLayout::kLinear) return Scales(page, token, head)[block];
  const std::int64_t quarter = row_blocks() / 4;
  const std::int64_t row = token / 4 * 4 + block / quarter;
  return Scales(page, row, head)[block % quarter * 4 + token % 4];
}

void SideView::Decode(std::int64_t page, std::int64_t token, std::int64_t head,
                      std::span<double> out) const {
  const std::uint8_t* row = Row(page, token, head);
  for (std::int64_t i = 0; i < head_dim_; ++i) {
    double& value = out[static_cast<std::size_t>(i)];
    switch (side_.data.dtype) {
      case DType::kF32:
        value = static_cast<double>(LoadAs<float>(row, i));
        break;
      case DType::kBF16:
        value = Ieee(LoadAs<std::uint16_t>(row, i), 8, 7);
        break;
      case DType::kF16:
        value = Ieee(LoadAs<std::uint16_t>(row, i), 5, 10);
        break;
      case DType::kE4M3:
        value = E4M3()[row[i]];
        break;
      case DType::kE5M2:
        value = E5M2()[row[i]];
        break;
      case DType::kNVFP4: {
        const std::int64_t block = i / kBlockElements;
        value = E2M1(row[i / 2] >> (i % 2 * 4) & 0xFu) *
                DecodeScaleByte(Scale(page, token, head, block));
        break;
      }
      case DType::kU8:
      case DType::kI32:
      case DType::kI64:
        value = 0;
        break;
    }
  }
}

}  // namespace kvilt::cli
