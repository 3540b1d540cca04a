#include "src/oracle/decode.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "src/core/check.h"

namespace kvilt::oracle {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// sign | exponent | mantissa, the usual rules, infinities and NaN in the highest exponent.
double DecodeIeee(std::uint32_t bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const auto mantissa = static_cast<double>(bits & ((1u << mantissa_bits) - 1));
  const int exponent = static_cast<int>((bits >> mantissa_bits) & ((1u << exponent_bits) - 1));
  const bool negative = (bits >> (exponent_bits + mantissa_bits)) & 1;
  double value = 0;
  if (exponent == (1 << exponent_bits) - 1) {
    value = mantissa == 0 ? kInfinity : kNan;
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, 1 - bias - mantissa_bits);
  } else {
    value = std::ldexp(mantissa + std::ldexp(1.0, mantissa_bits), exponent - bias - mantissa_bits);
  }
  return negative ? -value : value;
}

// e4m3fn: the highest exponent holds finite values too; only all ones is NaN.
double DecodeE4M3(std::uint32_t bits) {
  const auto mantissa = static_cast<double>(bits & 7);
  const int exponent = static_cast<int>((bits >> 3) & 15);
  double value = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  if ((bits & 127) == 127) value = kNan;
  return bits & 128 ? -value : value;
}

// Formats of 8 and 16 bits are read through tables of all their values.
std::vector<double> Table(std::uint32_t count, double (*decode)(std::uint32_t)) {
  std::vector<double> table;
  for (std::uint32_t bits = 0; bits < count; ++bits) table.push_back(decode(bits));
  return table;
}

}  // namespace

double DecodeFloat(DType dtype, std::uint32_t bits) {
  static const std::vector<double> e4m3 = Table(256, DecodeE4M3);
  static const std::vector<double> e5m2 =
      Table(256, [](std::uint32_t code) { return DecodeIeee(code, 5, 2); });
  static const std::vector<double> f16 =
      Table(65536, [](std::uint32_t code) { return DecodeIeee(code, 5, 10); });
  static const std::vector<double> bf16 =
      Table(65536, [](std::uint32_t code) { return DecodeIeee(code, 8, 7); });
  switch (dtype) {
    case DType::kF32:
      return DecodeIeee(bits, 8, 23);
    case DType::kBF16:
      return bf16[bits & 65535];
    case DType::kF16:
      return f16[bits & 65535];
    case DType::kE4M3:
      return e4m3[bits & 255];
    case DType::kE5M2:
      return e5m2[bits & 255];
    default:
      KVILT_CHECK(false);
      return 0;
  }
}

double DecodeE2M1(int code) {
  constexpr double kMagnitudes[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return code & 8 ? -kMagnitudes[code & 7] : kMagnitudes[code & 7];
}

const std::byte* At(const TensorView& view, const std::vector<std::int64_t>& index) {
  std::int64_t offset = 0;
  for (std::size_t dim = 0; dim < index.size(); ++dim) offset += index[dim] * view.stride[dim];
  return static_cast<const std::byte*>(view.data) + offset * StorageBytes(view.dtype);
}

std::vector<double> DecodeRow(DType dtype, const std::byte* from, std::int64_t elements) {
  const int bytes = StorageBytes(dtype);
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(elements));
  for (std::int64_t i = 0; i < elements; ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, from + i * bytes, static_cast<std::size_t>(bytes));
    values.push_back(DecodeFloat(dtype, bits));
  }
  return values;
}

}  // namespace kvilt::oracle
