// Tells from the scales alone in which order an NVFP4 side keeps them.
//
// Both orders permute the same 4 x S scales of four neighbouring tokens of one head (S = head_dim /
// 16); for S = 4 one is the other transposed. The codes cannot tell: every block has its largest
// code near 6 whatever its scale. Two things that only the true order shows, both on log2 of the
// scales:
//
// Channels. Some blocks of the head dim are larger than others, and stay so from one group of four
// tokens to the next; a token's place in its group means nothing. With b(g, s) the mean over the
// four tokens of block s in group g, minus the group's mean, as an order makes tokens and blocks:
//
//   channels = sum over g of 4 sum over s of b(g, s) b(g + 1, s) / sum of squares about the group
//   means
//
// the share of the variance that is a profile of blocks which lasts: 0 for the wrong order at S =
// 4, at most what neighbouring blocks have in common at larger S.
//
// Tokens. A token's scales rise and fall together, because the magnitude of a row belongs to its
// token. With B the variance between and W within the four tokens that an order makes, after the
// means of each place over all groups and of each group are removed:
//
//   tokens = (B - W) / (B + (S - 1) W)
//
// the intraclass correlation: 1 when a token's scales move as one, 0 when they are independent.
//
// Channels decide first. Blocks whose size drifts look to the wrong order like tokens that differ,
// so tokens are only asked when no lasting profile was found. On the captures in data/ (S = 4,
// stored by `kvilt run --kv-dtype nvfp4`) channels are 0.80 and 0.92 for K, 0.13 and 0.23 for V in
// the true order and within 0.006 of zero in the wrong one; tokens of layer 18's K would tell it
// wrongly.
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

// One of the two statistics, read in either order.
struct ScaleEvidence {
  double linear = 0;
  double interleaved4 = 0;
  // The difference between the orders, in standard deviations of such a difference when both are
  // equally good; positive for linear.
  double sigmas = 0;
  friend bool operator==(const ScaleEvidence&, const ScaleEvidence&) = default;
};

struct ScaleOrder {
  ScaleOrderVerdict verdict = ScaleOrderVerdict::kNotApplicable;
  std::string_view decided_by = "nothing";  // "channels", "tokens"
  ScaleEvidence channels;
  ScaleEvidence tokens;
  std::int64_t groups = 0;  // Groups of four tokens of one head that were compared.
};

// Evidence counts when both hold: chance makes the difference once in a million caches, and it is
// not merely significant because the cache is large.
inline constexpr double kVerdictSigmas = 5.0;
inline constexpr double kVerdictGap = 0.05;
// Below this many groups a head's place means are too rough, and the head is left out.
inline constexpr std::int64_t kMinGroupsPerHead = 8;

// REQUIRES: a kNVFP4 side that LoadCacheFile accepts and rows within it. Reads scales only.
ScaleOrder MeasureScaleOrder(const CacheSide& side, std::span<const RowSpan> spans,
                             std::int64_t page_size, bool paged);

}  // namespace kvilt::cli
