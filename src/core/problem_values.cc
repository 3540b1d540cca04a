#include "src/core/problem_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>

#include "src/core/check.h"

namespace kvilt::core {
namespace {

constexpr double kMeanSquareCode = 8.5625;  // Of the eight e2m1 magnitudes, equally likely.

struct Format {
  int bias;
  int mantissa_bits;
  double max;
};

Format FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return {127, 7, 0x1.FEp127};
    case DType::kF16:
      return {15, 10, 65504.0};
    case DType::kE4M3:
      return {7, 3, 448.0};
    case DType::kE5M2:
      return {15, 2, 57344.0};
    default:
      KVILT_CHECK(false);
      return {};
  }
}

double LevelMagnitude(int level) { return std::exp((level - kMiddleLevel) * 0.08); }

// The 256 quantiles of the standard normal distribution, in byte order.
const std::vector<double>& NormalQuantiles() {
  static const std::vector<double> quantiles = [] {
    std::vector<double> values(256);
    for (int i = 0; i < 256; ++i) {
      const double target = (i + 0.5) / 256;
      double low = -4, high = 4;
      for (int step = 0; step < 60; ++step) {
        const double middle = 0.5 * (low + high);
        (0.5 * std::erfc(-middle * std::sqrt(0.5)) < target ? low : high) = middle;
      }
      values[static_cast<std::size_t>(i)] = low;
    }
    return values;
  }();
  return quantiles;
}

// The exponent e of the typical stored magnitude 2^e: near 1 / global, inside what the format can
// hold at 12 * 2.9 times and at 1/12 of it.
int MagnitudeExponent(DType dtype, double global) {
  const int wanted =
      global > 0 && std::isfinite(global) ? static_cast<int>(std::lround(-std::log2(global))) : 0;
  switch (dtype) {
    case DType::kNVFP4:
      return std::clamp(wanted, -3, 6);
    case DType::kE4M3:
      return std::clamp(wanted, -3, 3);
    case DType::kE5M2:
    case DType::kF16:
      return std::clamp(wanted, -8, 8);
    default:
      return std::clamp(wanted, -60, 60);
  }
}

ValueTable MakeTable(DType dtype, int exponent, DataForm form) {
  ValueTable table;
  table.dtype = dtype;
  table.form = form;
  const double base = std::ldexp(1.0, exponent);
  double mean_square[kLevels] = {};
  const int bytes = StorageBytes(dtype);
  if (dtype != DType::kNVFP4) {
    table.elements.resize(std::size_t{kLevels} * 256 * static_cast<std::size_t>(bytes));
  }
  for (int level = 0; level < kLevels; ++level) {
    const double magnitude = base * LevelMagnitude(level);
    if (dtype == DType::kNVFP4) {
      // Level 0 holds zero scales: blocks that a writer flushed.
      const double scale = level == 0 ? 0.0 : magnitude / 4;
      table.scales[level] = static_cast<std::uint8_t>(EncodeValue(DType::kE4M3, scale));
      mean_square[level] = scale * scale * kMeanSquareCode;
      continue;
    }
    mean_square[level] = magnitude * magnitude;
    for (std::size_t i = 0; i < 256; ++i) {
      const std::uint32_t code = EncodeValue(dtype, magnitude * NormalQuantiles()[i]);
      std::memcpy(&table.elements[(static_cast<std::size_t>(level) * 256 + i) * bytes], &code,
                  static_cast<std::size_t>(bytes));
    }
  }
  constexpr int kSamples = 4032;
  double sum = 0;
  for (int i = 0; i < kSamples; ++i) {
    const std::uint64_t hash = HashOf(i, 77);
    const int level = RowLevel(form, hash, i);
    const bool blocks = dtype == DType::kNVFP4;
    sum += mean_square[blocks ? BlockLevel(form, level, hash >> 5, i, i / 63) : level];
  }
  table.rms = std::sqrt(sum / kSamples);
  return table;
}

}  // namespace

std::uint32_t EncodeValue(DType dtype, double value) {
  if (dtype == DType::kF32) return std::bit_cast<std::uint32_t>(static_cast<float>(value));
  const Format format = FormatOf(dtype);
  const std::uint32_t sign = std::signbit(value) ? 1u << (8 * StorageBytes(dtype) - 1) : 0u;
  const double magnitude = std::min(std::fabs(value), format.max);
  if (magnitude == 0) return sign;
  const int exponent = std::max(std::ilogb(magnitude), 1 - format.bias);
  const double steps = std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent));
  // Subnormals have no hidden one; a carry out of the mantissa moves to the next exponent by
  // itself.
  const auto hidden = std::uint32_t{1} << format.mantissa_bits;
  const auto field = static_cast<std::uint32_t>(exponent + format.bias - 1) * hidden;
  return sign | (field + static_cast<std::uint32_t>(steps));
}

std::shared_ptr<const ValueTable> TableFor(DType dtype, double global, DataForm form) {
  static std::mutex mutex;
  static std::map<std::tuple<DType, int, DataForm>, std::shared_ptr<const ValueTable>> tables;
  const int exponent = MagnitudeExponent(dtype, global);
  const std::lock_guard lock(mutex);
  auto& table = tables[{dtype, exponent, form}];
  if (!table) table = std::make_shared<const ValueTable>(MakeTable(dtype, exponent, form));
  return table;
}

int RowLevel(DataForm form, std::uint64_t hash, std::int64_t position) {
  if (form != DataForm::kLogNormal) return kMiddleLevel;
  // 64 coin flips: standard deviation 4, times two levels of 8 %: a factor 1.9.
  const int random = 2 * (std::popcount(MixBits(hash)) - 32);
  const int cycle = 3 * static_cast<int>(position % 7 - 3);
  return std::clamp(kMiddleLevel + random + cycle, 0, kLevels - 1);
}

int BlockLevel(DataForm form, int level, std::uint64_t bits, std::int64_t position,
               std::int64_t block) {
  if (form != DataForm::kLogNormal) return level;
  const int cycle = 2 * static_cast<int>((block * 5 + position) % 9 - 4);
  return std::clamp(level + cycle + static_cast<int>(bits & 3), 0, kLevels - 1);
}

void FillElements(const ValueTable& table, int level, Random random, std::int64_t count,
                  std::byte* row) {
  if (table.dtype == DType::kNVFP4) {
    for (std::int64_t i = 0; i < count; i += 8) {
      const std::uint64_t bits = random.Next();
      std::memcpy(row + i, &bits, static_cast<std::size_t>(std::min<std::int64_t>(8, count - i)));
    }
    return;
  }
  const auto bytes = static_cast<std::size_t>(StorageBytes(table.dtype));
  const std::uint8_t* values = &table.elements[static_cast<std::size_t>(level) * 256 * bytes];
  const auto copy = [&]<std::size_t kBytes>(std::integral_constant<std::size_t, kBytes>) {
    for (std::int64_t i = 0; i < count; i += 8) {
      std::uint64_t bits = random.Next();
      for (std::int64_t j = i; j < std::min(i + 8, count); ++j, bits >>= 8) {
        std::memcpy(row + j * static_cast<std::int64_t>(kBytes), values + (bits & 255) * kBytes,
                    kBytes);
      }
    }
  };
  switch (bytes) {
    case 1:
      return copy(std::integral_constant<std::size_t, 1>{});
    case 2:
      return copy(std::integral_constant<std::size_t, 2>{});
    default:
      return copy(std::integral_constant<std::size_t, 4>{});
  }
}

void FillNormalElements(DType dtype, double rms, std::int64_t count, Random& random,
                        std::byte* row) {
  const std::int64_t bytes = StorageBytes(dtype);
  for (std::int64_t i = 0; i < count; i += 8) {
    std::uint64_t bits = random.Next();
    for (std::int64_t j = i; j < std::min(i + 8, count); ++j, bits >>= 8) {
      if (dtype == DType::kNVFP4) {
        row[j] = static_cast<std::byte>(bits & 255);
        continue;
      }
      const std::uint32_t code = EncodeValue(dtype, rms * NormalQuantiles()[bits & 255]);
      std::memcpy(row + j * bytes, &code, static_cast<std::size_t>(bytes));
    }
  }
}

void FillConstantElements(DType dtype, double value, std::int64_t count, std::byte* row) {
  if (dtype == DType::kNVFP4) {
    // Codes of +-1; the scale carries the magnitude.
    std::memset(row, value < 0 ? 0xAA : 0x22, static_cast<std::size_t>(count));
    return;
  }
  const std::uint32_t code = EncodeValue(dtype, value);
  const std::int64_t bytes = StorageBytes(dtype);
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(row + i * bytes, &code, static_cast<std::size_t>(bytes));
  }
}

}  // namespace kvilt::core
