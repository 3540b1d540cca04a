// Tells from the scales alone in which order an NVFP4 side keeps them.
//
// A token's scales rise and fall together, because the magnitude of a row belongs to its token.
// Read in the order they were written in, the scales of one token agree; read in the other order, a
// "token" is a mixture of four, and they do not. The codes cannot tell: every block has its largest
// code near 6 whatever its scale.
//
// Both orders permute the same 4 x S scales of four neighbouring tokens of one head (S = head_dim /
// 16), so the comparison is within such groups. From log2 of the scales we remove the mean of each
// of the 4 x S places over all groups of the head (what belongs to channels, not tokens) and the
// mean of each group (what four neighbours share); neither depends on the order. Then for each
// order
//
//   coherence = (B - W) / (B + (S - 1) W)
//
// with B the variance between and W the variance within the four tokens that the order makes: the
// intraclass correlation, 1 when a token's scales move as one, 0 when they are independent,
// negative when an order mixes what belongs together.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "cli/inspect/cache_rows.h"
#include "kvilt/kv_cache.h"

namespace kvilt::cli {

enum class ScaleOrderVerdict {
  kUndecidable,  // The data does not tell: independent or equal scales, or too few.
  kLinear,
  kInterleaved4,
  kNotApplicable,  // interleaved4 is impossible: ragged, page size or S no multiple of 4.
};
std::string_view Name(ScaleOrderVerdict verdict);

struct ScaleOrder {
  ScaleOrderVerdict verdict = ScaleOrderVerdict::kNotApplicable;
  double linear = 0;  // Coherence in either order.
  double interleaved4 = 0;
  // Sum over groups of the difference between the orders, in standard deviations of such a sum when
  // both orders are equally good.
  double sigmas = 0;
  std::int64_t groups = 0;  // Groups of four tokens of one head that were compared.
};

// A verdict needs both: a difference that chance makes once in a million caches, and one that is
// not merely significant because the cache is large.
inline constexpr double kVerdictSigmas = 5.0;
inline constexpr double kVerdictCoherence = 0.05;
// Below this many groups a head's place means are too rough, and the head is left out.
inline constexpr std::int64_t kMinGroupsPerHead = 8;

// REQUIRES: a kNVFP4 side that LoadCacheFile accepts and rows within it. Reads scales only.
ScaleOrder MeasureScaleOrder(const CacheSide& side, std::span<const RowSpan> spans,
                             std::int64_t page_size, bool paged);

}  // namespace kvilt::cli
