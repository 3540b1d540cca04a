#include "cli/report/labels.h"

#include <algorithm>

namespace kvilt::cli::report {
namespace {

constexpr double kLineHeight = 16;

}  // namespace

std::vector<PlacedLabel> Spread(std::vector<PlacedLabel> labels, double bottom) {
  std::sort(labels.begin(), labels.end(),
            [](const PlacedLabel& a, const PlacedLabel& b) { return a.y < b.y; });
  for (std::size_t i = 1; i < labels.size(); ++i) {
    labels[i].y = std::max(labels[i].y, labels[i - 1].y + kLineHeight);
  }
  double limit = bottom;
  for (std::size_t i = labels.size(); i-- > 0;) {
    labels[i].y = std::min(labels[i].y, limit);
    limit = labels[i].y - kLineHeight;
  }
  return labels;
}

}  // namespace kvilt::cli::report
