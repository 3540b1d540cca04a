#include "cli/report/labels.h"

#include <algorithm>

namespace kvilt::cli::report {
namespace {

constexpr double kLineHeight = 16;
constexpr double kLabelWidth = 90;  // Of a short name.

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

std::vector<PlacedLabel> SpreadBeside(std::vector<PlacedLabel> labels, double bottom) {
  std::sort(labels.begin(), labels.end(),
            [](const PlacedLabel& a, const PlacedLabel& b) { return a.x < b.x; });
  std::vector<PlacedLabel> placed;
  for (std::size_t begin = 0; begin < labels.size();) {
    std::size_t end = begin + 1;
    while (end < labels.size() && labels[end].x - labels[end - 1].x < kLabelWidth) ++end;
    const auto first = labels.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = labels.begin() + static_cast<std::ptrdiff_t>(end);
    for (PlacedLabel label : Spread({first, last}, bottom)) {
      label.x = labels[end - 1].x;
      placed.push_back(label);
    }
    begin = end;
  }
  return placed;
}

}  // namespace kvilt::cli::report
