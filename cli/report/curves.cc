#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/report/axis.h"
#include "cli/report/labels.h"
#include "cli/report/plots.h"
#include "cli/report/svg.h"
#include "cli/terminal.h"

namespace kvilt::cli::report {
namespace {

constexpr double kWidth = 860;

// Of a round number: "20 us", without the digits that a measurement would have.
std::string RoundTime(double us) {
  if (us < 1e3) return fmt::format("{:g} us", us);
  return us < 1e6 ? fmt::format("{:g} ms", us / 1e3) : fmt::format("{:g} s", us / 1e6);
}

}  // namespace

std::string TimePlot(std::string_view title, const std::vector<Curve>& curves) {
  constexpr double kHeight = 380, kLeft = 76, kRight = kWidth - 150, kTop = 40;
  constexpr double kBottom = kHeight - 50;
  Svg svg(kWidth, kHeight, title);
  std::vector<double> tokens, times;
  for (const Curve& curve : curves) {
    for (const CurvePoint& point : curve.points) {
      tokens.push_back(point.tokens);
      times.push_back(point.us);
    }
  }
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  if (tokens.empty()) tokens = {1};
  const LogRange range = PowersAround(times, true);
  const Scale x{tokens.front() / 1.3, tokens.back() * 1.3, kLeft, kRight, true};
  const Scale y{range.lo, range.hi, kBottom, kTop, true};
  DrawXAxis(
      svg, x, kTop, kBottom, tokens,
      [](double v) { return HumanTokens(static_cast<std::int64_t>(v)); }, "context, tokens");
  DrawYAxis(svg, y, kLeft, kRight, Ticks(y), RoundTime, "time of one decode call");
  std::vector<PlacedLabel> labels;
  for (std::size_t c = 0; c < curves.size(); ++c) {
    std::vector<Point> path;
    for (const CurvePoint& point : curves[c].points) path.push_back({x(point.tokens), y(point.us)});
    svg.Polyline(path, (curves[c].dashed ? "curve dashed " : "curve ") + curves[c].css);
    for (std::size_t i = 0; i < path.size(); ++i) {
      svg.Circle(path[i], 4, "mark " + curves[c].css,
                 curves[c].label + ": " + HumanTime(curves[c].points[i].us));
    }
    if (!path.empty()) labels.push_back({c, path.back().y + 4});
  }
  for (const PlacedLabel& label : Spread(labels, kBottom)) {
    svg.Text({x(tokens.back()) + 12, label.y}, curves[label.index].label,
             "label " + curves[label.index].css);
  }
  return svg.Finish();
}

std::string MirrorPlot(std::string_view title, const MirrorSeries& up, const MirrorSeries& down,
                       double bin_tokens, const MirrorMark& mark) {
  constexpr double kHeight = 360, kLeft = 76, kRight = kWidth - 20, kTop = 44;
  constexpr double kMiddle = kHeight / 2, kBottom = kHeight - 44;
  Svg svg(kWidth, kHeight, title);
  const auto bins = static_cast<double>(up.shares.size());
  double most = 1e-6;
  for (double share : up.shares) most = std::max(most, share);
  for (double share : down.shares) most = std::max(most, share);
  const Scale x{0, std::max(1.0, bins * bin_tokens), kLeft, kRight, false};
  const double reach = (kBottom - kTop) / 2 - 4;
  const auto height = [&](double share) { return std::sqrt(std::max(0.0, share) / most) * reach; };
  for (double share : {0.01, 0.1, 0.5}) {
    if (share > most) continue;
    for (double sign : {-1.0, 1.0}) {
      const double y = kMiddle + sign * height(share);
      svg.Line({kLeft, y}, {kRight, y}, "grid");
      svg.Text({kLeft - 8, y + 4}, fmt::format("{:g} %", share * 100), "tick", Anchor::kEnd);
    }
  }
  const double bar = std::max(1.0, (kRight - kLeft) / std::max(1.0, bins) - 0.6);
  for (std::size_t i = 0; i < up.shares.size(); ++i) {
    const double left = x(static_cast<double>(i) * bin_tokens);
    const double rise = height(up.shares[i]);
    svg.Rect(left, kMiddle - rise, bar, rise, "mark " + up.css);
    if (i < down.shares.size()) {
      svg.Rect(left, kMiddle, bar, height(down.shares[i]), "mark " + down.css);
    }
  }
  svg.Line({kLeft, kMiddle}, {kRight, kMiddle}, "axis");
  svg.Line({x(mark.position), kTop - 12}, {x(mark.position), kTop - 1}, "reference");
  svg.Line({x(mark.position), kBottom + 1}, {x(mark.position), kBottom + 8}, "reference");
  const bool late = x(mark.position) > (kLeft + kRight) / 2;
  svg.Text({x(mark.position) + (late ? -8 : 8), kTop - 2}, mark.text, "note",
           late ? Anchor::kEnd : Anchor::kStart);
  svg.Text({kLeft + 60, kTop + 22}, up.label, "label " + up.css);
  svg.Text({kLeft + 60, kBottom - 12}, down.label, "label " + down.css);
  svg.Text({kLeft, 18}, "attention mass per bin (square-root axis)", "axis-title");
  for (double tick : Ticks(x, 6)) {
    svg.Text({x(tick), kBottom + 22}, fmt::format("{:g}", tick), "tick", Anchor::kMiddle);
  }
  svg.Text({kRight, kBottom + 40}, "key position, tokens", "axis-title", Anchor::kEnd);
  return svg.Finish();
}

}  // namespace kvilt::cli::report
