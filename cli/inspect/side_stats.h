// What the addressed rows of a cache side hold: counts, magnitudes per head, and the scales.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "cli/inspect/cache_rows.h"
#include "kvilt/kv_cache.h"

namespace kvilt::cli {

// Of finite elements, global included.
struct HeadMagnitude {
  double max_abs = 0;
  double rms = 0;
};

struct ScaleStats {
  std::int64_t blocks = 0;
  std::array<std::int64_t, 256> histogram = {};  // By byte.
  std::int64_t nan = 0;                          // 0x7F, 0xFF.
  std::int64_t negative = 0;                     // The writers never make one.
  std::int64_t zero = 0;                         // Every element of the block reads as zero.
  // Of the zero ones, those with a signed zero among their codes: the block held values that a
  // scale could not represent, and was flushed. Zero blocks of zeros have none.
  std::int64_t flushed = 0;
  std::int64_t at_max = 0;  // 448: saturated, or just fitting.
  double min = 0;           // Of positive scales; 0 when there is none.
  double max = 0;
};

struct SideStats {
  std::int64_t elements = 0;
  std::int64_t nan = 0;  // After decoding: a NaN scale makes 16.
  std::int64_t infinite = 0;
  std::int64_t zero = 0;
  std::int64_t at_max = 0;  // fp8 elements at the largest finite magnitude: saturated, or fitting.
  std::vector<HeadMagnitude> heads;
  ScaleStats scales;  // kNVFP4 only.
};

// REQUIRES: a side that LoadCacheFile accepts, rows within it.
SideStats MeasureSide(const CacheSide& side, std::span<const RowSpan> spans);

}  // namespace kvilt::cli
