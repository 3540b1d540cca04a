// Random rows of any cache dtype, written as codes and scales. Values are looked up in tables, so
// a gigabyte takes about a second.
//
// A row's magnitude is a level: level l stands for exp((l - 32) * 0.08), so 64 levels span 0.08 to
// 12. Levels are normally distributed over tokens and heads (magnitudes log-normal), cycle with the
// position, and for NVFP4 also vary with the block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kvilt/dtype.h"
#include "src/core/problem.h"
#include "src/core/random.h"

namespace kvilt::core {

inline constexpr int kLevels = 64;
inline constexpr int kMiddleLevel = 32;

// The bits of `value` in a format, nearest even, saturating; the low StorageBytes of the result.
// REQUIRES: a 16 or 32 bit or fp8 dtype.
std::uint32_t EncodeValue(DType dtype, double value);

// Values of one dtype whose typical magnitude is a power of two.
struct ValueTable {
  DType dtype = DType::kBF16;
  DataForm form = DataForm::kLogNormal;
  // Not kNVFP4: [kLevels][256] encoded normal variates, StorageBytes each.
  std::vector<std::uint8_t> elements;
  std::uint8_t scales[kLevels] = {};  // kNVFP4: e4m3 bytes.
  double rms = 0;  // Of the stored values (scales included), over tokens, heads and blocks.
};

// The table for stored values around 1 / global, or as near as the format allows. Shared and
// cached; thread-safe.
std::shared_ptr<const ValueTable> TableFor(DType dtype, double global, DataForm form);

// The level of a row: `hash` decides the random part, `position` the cycle.
int RowLevel(DataForm form, std::uint64_t hash, std::int64_t position);

// Normal variates of deviation `rms`, encoded one by one: for rows whose magnitude is free.
// kNVFP4: random codes and scales of that magnitude.
template <class ScaleAt>
void FillQueryRow(DType dtype, double rms, std::int64_t head_dim, Random random, std::byte* row,
                  ScaleAt scale_at);

// Writes one row of head_dim values. `scale_at(s)` is where the scale byte of block s goes.
template <class ScaleAt>
void FillRow(const ValueTable& table, std::uint64_t hash, std::int64_t position,
             std::int64_t head_dim, std::byte* row, ScaleAt scale_at);

// A constant row (DataForm::kExtreme): `value` is +-2^n within the format.
template <class ScaleAt>
void FillConstantRow(DType dtype, double value, std::int64_t head_dim, std::byte* row,
                     ScaleAt scale_at);

// ------------------------------------------------------------------------------ implementation

void FillElements(const ValueTable& table, int level, Random random, std::int64_t count,
                  std::byte* row);
void FillConstantElements(DType dtype, double value, std::int64_t count, std::byte* row);
void FillNormalElements(DType dtype, double rms, std::int64_t count, Random& random,
                        std::byte* row);
int BlockLevel(DataForm form, int level, std::uint64_t bits, std::int64_t position,
               std::int64_t block);

template <class ScaleAt>
void FillRow(const ValueTable& table, std::uint64_t hash, std::int64_t position,
             std::int64_t head_dim, std::byte* row, ScaleAt scale_at) {
  const int level = RowLevel(table.form, hash, position);
  FillElements(table, level, Random(hash), RowElements(table.dtype, head_dim), row);
  if (table.dtype != DType::kNVFP4) return;
  const std::uint64_t bits = MixBits(~hash);
  for (std::int64_t s = 0; s < head_dim / kBlockElements; ++s) {
    const int block = BlockLevel(table.form, level, bits >> (2 * (s % 32)), position, s);
    *scale_at(s) = static_cast<std::byte>(table.scales[block]);
  }
}

template <class ScaleAt>
void FillQueryRow(DType dtype, double rms, std::int64_t head_dim, Random random, std::byte* row,
                  ScaleAt scale_at) {
  FillNormalElements(dtype, rms, RowElements(dtype, head_dim), random, row);
  if (dtype != DType::kNVFP4) return;
  for (std::int64_t s = 0; s < head_dim / kBlockElements; ++s) {
    // A random code has the root mean square 2.93, scales from half to one and a half 1.04.
    const double scale = rms / 3.05 * (0.5 + static_cast<double>(random.Below(256)) / 256);
    *scale_at(s) = static_cast<std::byte>(EncodeValue(DType::kE4M3, scale));
  }
}

template <class ScaleAt>
void FillConstantRow(DType dtype, double value, std::int64_t head_dim, std::byte* row,
                     ScaleAt scale_at) {
  FillConstantElements(dtype, value, RowElements(dtype, head_dim), row);
  if (dtype != DType::kNVFP4) return;
  const double magnitude = value < 0 ? -value : value;
  for (std::int64_t s = 0; s < head_dim / kBlockElements; ++s) {
    *scale_at(s) = static_cast<std::byte>(EncodeValue(DType::kE4M3, magnitude));
  }
}

}  // namespace kvilt::core
