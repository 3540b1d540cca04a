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

// Accumulates one statistic over groups.
struct Sums {
  double total = 0;  // Of squares.
  double linear = 0;
  double interleaved4 = 0;
  double difference_squares = 0;

  void Add(double as_linear, double as_interleaved4) {
    linear += as_linear;
    interleaved4 += as_interleaved4;
    difference_squares += (as_linear - as_interleaved4) * (as_linear - as_interleaved4);
  }
  double Sigmas() const {
    return difference_squares > 0 ? (linear - interleaved4) / std::sqrt(difference_squares) : 0.0;
  }
};

// Where a stored place (row, column) of a group belongs, as each order sees it.
struct Place {
  std::int64_t linear_token, linear_block;
  std::int64_t interleaved4_token, interleaved4_block;
};

class HeadGroups {
 public:
  explicit HeadGroups(std::int64_t row_blocks) : row_blocks_(row_blocks) {
    for (std::int64_t row = 0; row < kGroupTokens; ++row) {
      for (std::int64_t column = 0; column < row_blocks; ++column) {
        places_.push_back({row, column, column % kGroupTokens,
                           row * (row_blocks / kGroupTokens) + column / kGroupTokens});
      }
    }
  }

  // Appends the four rows at (page, token), unless one holds NaN.
  void Add(const SideView& view, std::int64_t page, std::int64_t token, std::int64_t head) {
    const std::size_t begin = logs_.size();
    if (groups() >= kMaxGroupsPerHead) return;
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

  std::int64_t groups() const { return static_cast<std::int64_t>(logs_.size() / places_.size()); }

  void AddTo(Sums& channels, Sums& tokens) {
    RemoveGroupMeans();
    AddChannels(channels);
    RemovePlaceMeans();  // Leaves the group means at zero.
    for (std::int64_t g = 0; g < groups(); ++g) AddTokens(Group(g), tokens);
  }

 private:
  std::span<double> Group(std::int64_t g) {
    return {logs_.data() + static_cast<std::size_t>(g) * places_.size(), places_.size()};
  }

  void RemoveGroupMeans() {
    for (std::int64_t g = 0; g < groups(); ++g) {
      double mean = 0;
      for (const double x : Group(g)) mean += x;
      mean /= static_cast<double>(places_.size());
      for (double& x : Group(g)) x -= mean;
    }
  }

  void RemovePlaceMeans() {
    for (std::size_t place = 0; place < places_.size(); ++place) {
      double mean = 0;
      for (std::int64_t g = 0; g < groups(); ++g) mean += Group(g)[place];
      mean /= static_cast<double>(groups());
      for (std::int64_t g = 0; g < groups(); ++g) Group(g)[place] -= mean;
    }
  }

  void AddChannels(Sums& sums) {
    std::vector<double> linear(static_cast<std::size_t>(row_blocks_));
    std::vector<double> interleaved4 = linear, last_linear = linear, last_interleaved4 = linear;
    for (std::int64_t g = 0; g < groups(); ++g) {
      const std::span<const double> group = Group(g);
      std::fill(linear.begin(), linear.end(), 0.0);
      std::fill(interleaved4.begin(), interleaved4.end(), 0.0);
      for (std::size_t i = 0; i < group.size(); ++i) {
        linear[static_cast<std::size_t>(places_[i].linear_block)] += group[i] / kGroupTokens;
        interleaved4[static_cast<std::size_t>(places_[i].interleaved4_block)] +=
            group[i] / kGroupTokens;
        sums.total += group[i] * group[i];
      }
      double as_linear = 0, as_interleaved4 = 0;
      for (std::size_t s = 0; s < linear.size(); ++s) {
        as_linear += kGroupTokens * linear[s] * last_linear[s];
        as_interleaved4 += kGroupTokens * interleaved4[s] * last_interleaved4[s];
      }
      if (g > 0) sums.Add(as_linear, as_interleaved4);
      std::swap(linear, last_linear);
      std::swap(interleaved4, last_interleaved4);
    }
  }

  void AddTokens(std::span<const double> group, Sums& sums) const {
    double linear[kGroupTokens] = {};
    double interleaved4[kGroupTokens] = {};
    for (std::size_t i = 0; i < group.size(); ++i) {
      linear[places_[i].linear_token] += group[i];
      interleaved4[places_[i].interleaved4_token] += group[i];
      sums.total += group[i] * group[i];
    }
    double as_linear = 0, as_interleaved4 = 0;
    for (std::int64_t token = 0; token < kGroupTokens; ++token) {
      as_linear += linear[token] * linear[token] / static_cast<double>(row_blocks_);
      as_interleaved4 +=
          interleaved4[token] * interleaved4[token] / static_cast<double>(row_blocks_);
    }
    sums.Add(as_linear, as_interleaved4);
  }

  std::int64_t row_blocks_;
  std::vector<Place> places_;
  std::vector<double> logs_;  // [groups][4][row_blocks]
};

// The intraclass correlation, from the sum of squares between tokens.
double Intraclass(double between, double total, std::int64_t groups, std::int64_t row_blocks) {
  const double g = static_cast<double>(groups);
  const double s = static_cast<double>(row_blocks);
  const double b = between / (g * (kGroupTokens - 1));
  const double w = (total - between) / (g * kGroupTokens * (s - 1));
  return b + (s - 1) * w > 0 ? (b - w) / (b + (s - 1) * w) : 0.0;
}

bool Decides(const ScaleEvidence& evidence) {
  return std::fabs(evidence.sigmas) >= kVerdictSigmas &&
         std::fabs(evidence.linear - evidence.interleaved4) >= kVerdictGap;
}

void Decide(ScaleOrder& order) {
  const ScaleEvidence* evidence = nullptr;
  if (Decides(order.channels)) {
    evidence = &order.channels;
    order.decided_by = "channels";
  } else if (Decides(order.tokens)) {
    evidence = &order.tokens;
    order.decided_by = "tokens";
  }
  order.verdict = evidence == nullptr    ? ScaleOrderVerdict::kUndecidable
                  : evidence->sigmas > 0 ? ScaleOrderVerdict::kLinear
                                         : ScaleOrderVerdict::kInterleaved4;
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
  Sums channels, tokens;
  for (std::int64_t head = 0; head < view.heads(); ++head) {
    HeadGroups groups(row_blocks);
    for (const RowSpan& span : spans) {
      for (std::int64_t token = span.begin; token + kGroupTokens <= span.end;
           token += kGroupTokens) {
        groups.Add(view, span.page, token, head);
      }
    }
    if (groups.groups() < kMinGroupsPerHead) continue;
    order.groups += groups.groups();
    groups.AddTo(channels, tokens);
  }
  if (channels.total > 0) {
    order.channels = {channels.linear / channels.total, channels.interleaved4 / channels.total,
                      channels.Sigmas()};
  }
  if (tokens.total > 0) {
    order.tokens = {Intraclass(tokens.linear, tokens.total, order.groups, row_blocks),
                    Intraclass(tokens.interleaved4, tokens.total, order.groups, row_blocks),
                    tokens.Sigmas()};
  }
  Decide(order);
  return order;
}

}  // namespace kvilt::cli
