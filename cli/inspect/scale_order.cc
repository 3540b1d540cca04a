#include "cli/inspect/scale_order.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "cli/inspect/side_view.h"

namespace kvilt::cli {
namespace {

constexpr std::int64_t kGroupTokens = 4;
// More would not change the verdict; bounds memory.
constexpr std::int64_t kMaxGroupsPerHead = 65536;

// Sums over all groups of all heads.
struct Sums {
  double total = 0;   // Of squares.
  double linear = 0;  // Between tokens, as either order makes them.
  double interleaved4 = 0;
  double difference = 0;  // linear - interleaved4, per group.
  double difference_squares = 0;
  std::int64_t groups = 0;
};

class HeadGroups {
 public:
  explicit HeadGroups(std::int64_t row_blocks) : row_blocks_(row_blocks) {}

  // Appends the four rows at (page, token), unless one holds NaN.
  void Add(const SideView& view, std::int64_t page, std::int64_t token, std::int64_t head) {
    const std::size_t begin = logs_.size();
    if (begin >= static_cast<std::size_t>(kMaxGroupsPerHead * kGroupTokens * row_blocks_)) return;
    for (std::int64_t row = 0; row < kGroupTokens; ++row) {
      const std::uint8_t* scales = view.Scales(page, token + row, head);
      for (std::int64_t i = 0; i < row_blocks_; ++i) {
        const double scale = DecodeScaleByte(scales[i]);
        if (std::isnan(scale)) return logs_.resize(begin);
        // A zero scale counts as half of the smallest one.
        logs_.push_back(std::log2(std::max(std::fabs(scale), kSmallestScale / 2)));
      }
    }
  }

  void AddTo(Sums& sums) {
    const std::size_t places = static_cast<std::size_t>(kGroupTokens * row_blocks_);
    const std::size_t groups = logs_.size() / places;
    if (groups < static_cast<std::size_t>(kMinGroupsPerHead)) return;
    RemovePlaceMeans(places, groups);
    for (std::size_t g = 0; g < groups; ++g) AddGroup({logs_.data() + g * places, places}, sums);
  }

 private:
  void RemovePlaceMeans(std::size_t places, std::size_t groups) {
    for (std::size_t place = 0; place < places; ++place) {
      double mean = 0;
      for (std::size_t g = 0; g < groups; ++g) mean += logs_[g * places + place];
      mean /= static_cast<double>(groups);
      for (std::size_t g = 0; g < groups; ++g) logs_[g * places + place] -= mean;
    }
  }

  void AddGroup(std::span<const double> group, Sums& sums) const {
    double mean = 0;
    for (const double x : group) mean += x;
    mean /= static_cast<double>(group.size());
    double by_row[kGroupTokens] = {};     // linear: a row is a token.
    double by_column[kGroupTokens] = {};  // interleaved4: column c belongs to token c mod 4.
    double total = 0;
    for (std::int64_t row = 0; row < kGroupTokens; ++row) {
      for (std::int64_t column = 0; column < row_blocks_; ++column) {
        const double x = group[static_cast<std::size_t>(row * row_blocks_ + column)] - mean;
        by_row[row] += x;
        by_column[column % kGroupTokens] += x;
        total += x * x;
      }
    }
    double linear = 0;
    double interleaved4 = 0;
    for (std::int64_t token = 0; token < kGroupTokens; ++token) {
      linear += by_row[token] * by_row[token] / static_cast<double>(row_blocks_);
      interleaved4 += by_column[token] * by_column[token] / static_cast<double>(row_blocks_);
    }
    sums.total += total;
    sums.linear += linear;
    sums.interleaved4 += interleaved4;
    sums.difference += linear - interleaved4;
    sums.difference_squares += (linear - interleaved4) * (linear - interleaved4);
    sums.groups += 1;
  }

  std::int64_t row_blocks_;
  std::vector<double> logs_;  // [groups][4][row_blocks]
};

// The intraclass correlation of one order.
double Coherence(double between, const Sums& sums, std::int64_t row_blocks) {
  const double groups = static_cast<double>(sums.groups);
  const double s = static_cast<double>(row_blocks);
  const double b = between / (groups * (kGroupTokens - 1));
  const double w = (sums.total - between) / (groups * kGroupTokens * (s - 1));
  return b + (s - 1) * w > 0 ? (b - w) / (b + (s - 1) * w) : 0.0;
}

}  // namespace

std::string_view Name(ScaleOrderVerdict verdict) {
  switch (verdict) {
    case ScaleOrderVerdict::kUndecidable:
      return "undecidable";
    case ScaleOrderVerdict::kLinear:
      return "linear";
    case ScaleOrderVerdict::kInterleaved4:
      return "interleaved4";
    case ScaleOrderVerdict::kNotApplicable:
      return "not applicable";
  }
  return "unknown";
}

ScaleOrder MeasureScaleOrder(const CacheSide& side, std::span<const RowSpan> spans,
                             std::int64_t page_size, bool paged) {
  ScaleOrder order;
  const SideView view(side);
  const std::int64_t row_blocks = view.row_blocks();
  if (!paged || page_size % kGroupTokens != 0 || row_blocks % kGroupTokens != 0) return order;
  Sums sums;
  for (std::int64_t head = 0; head < view.heads(); ++head) {
    HeadGroups groups(row_blocks);
    for (const RowSpan& span : spans) {
      for (std::int64_t token = span.begin; token + kGroupTokens <= span.end;
           token += kGroupTokens) {
        groups.Add(view, span.page, token, head);
      }
    }
    groups.AddTo(sums);
  }
  order.verdict = ScaleOrderVerdict::kUndecidable;
  order.groups = sums.groups;
  if (sums.groups == 0 || sums.difference_squares <= 0) return order;
  order.linear = Coherence(sums.linear, sums, row_blocks);
  order.interleaved4 = Coherence(sums.interleaved4, sums, row_blocks);
  order.sigmas = sums.difference / std::sqrt(sums.difference_squares);
  const double gap = order.linear - order.interleaved4;
  if (std::fabs(order.sigmas) >= kVerdictSigmas && std::fabs(gap) >= kVerdictCoherence) {
    order.verdict = gap > 0 ? ScaleOrderVerdict::kLinear : ScaleOrderVerdict::kInterleaved4;
  }
  return order;
}

}  // namespace kvilt::cli
