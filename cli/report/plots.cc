#include "cli/report/plots.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/report/axis.h"
#include "cli/report/labels.h"
#include "cli/report/svg.h"
#include "cli/terminal.h"

namespace kvilt::cli::report {
namespace {

constexpr double kWidth = 860;
constexpr double kLabelWidth = 184;  // Left of the plots that have a label a row.

// A power of ten, or a round number near 1.
std::string Power(double value) {
  if (value >= 1e-2 && value <= 100) return fmt::format("{:g}", value);
  return fmt::format("1e{:.0f}", std::log10(value));
}

void RowLabel(Svg& svg, double y, std::string_view label, std::string_view note) {
  svg.Text({kLabelWidth - 16, note.empty() ? y + 4 : y - 3}, label, "label", Anchor::kEnd);
  if (!note.empty()) svg.Text({kLabelWidth - 16, y + 12}, note, "note", Anchor::kEnd);
}

}  // namespace

std::string DumbbellPlot(std::string_view title, const std::vector<DumbbellRow>& rows,
                         const DumbbellNames& names) {
  constexpr double kRow = 46, kTop = 34;
  const double bottom = kTop + kRow * static_cast<double>(rows.size());
  Svg svg(kWidth, bottom + 46, title);
  std::vector<double> values;
  for (const DumbbellRow& row : rows) values.insert(values.end(), {row.low, row.high});
  const LogRange range = PowersAround(values);
  // Half a power to the left, for the numbers beside the hollow marks.
  const Scale x{range.lo / 3.2, range.hi, kLabelWidth, kWidth - 60, true};
  DrawXAxis(svg, x, kTop - 8, bottom, Ticks(x), Power, names.axis);
  bool named = false;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const DumbbellRow& row = rows[i];
    const double y = kTop + kRow * (static_cast<double>(i) + 0.5);
    RowLabel(svg, y, row.label, row.note);
    const bool both = row.low > 0 && row.high > 0;
    if (both) svg.Line({x(row.low), y}, {x(row.high), y}, "link " + row.css);
    if (both && !named) {
      svg.Text({x(row.low), y - 14}, names.low, "note", Anchor::kMiddle);
      svg.Text({x(row.high), y - 14}, names.high, "note", Anchor::kMiddle);
      named = true;
    }
    if (row.low > 0) {
      svg.Circle({x(row.low), y}, 5.5, "hollow " + row.css,
                 names.low + ": " + HumanNumber(row.low));
      svg.Text({x(row.low) - 12, y + 4}, HumanNumber(row.low), "value", Anchor::kEnd);
    }
    if (row.high > 0) {
      svg.Circle({x(row.high), y}, 6, "mark " + row.css, names.high + ": " + HumanNumber(row.high));
      svg.Text({x(row.high) + 12, y + 4}, HumanNumber(row.high), "value");
    }
  }
  return svg.Finish();
}

std::string BarPlot(std::string_view title, const std::vector<BarRow>& rows, std::string_view axis,
                    const BarMark& mark) {
  constexpr double kRow = 34, kTop = 22, kTextWidth = 160;
  const double bottom = kTop + kRow * static_cast<double>(rows.size());
  Svg svg(kWidth, bottom + 46, title);
  double most = mark.value;
  for (const BarRow& row : rows) {
    double sum = 0;
    for (const BarPart& part : row.parts) sum += part.value;
    most = std::max(most, sum);
  }
  if (!(most > 0)) most = 1;
  const Scale x{0, most, kLabelWidth, kWidth - kTextWidth, false};
  DrawXAxis(
      svg, x, kTop - 4, bottom, Ticks(x), [](double v) { return fmt::format("{:g}", v); }, axis);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double y = kTop + kRow * (static_cast<double>(i) + 0.5);
    RowLabel(svg, y, rows[i].label, {});
    double at = 0;
    for (const BarPart& part : rows[i].parts) {
      const double begin = x(at);
      at += part.value;
      svg.Rect(begin, y - 10, std::max(0.0, x(at) - begin), 20, "mark " + part.css, part.tip, 2);
    }
    svg.Text({x(at) + 10, y + 4}, rows[i].text, "value");
  }
  if (mark.value > 0) {
    svg.Line({x(mark.value), kTop - 8}, {x(mark.value), bottom}, "reference");
    svg.Text({x(mark.value), kTop - 12}, mark.text, "note", Anchor::kMiddle);
  }
  return svg.Finish();
}

std::string ScatterPlot(std::string_view title, const std::vector<ScatterPoint>& points,
                        const AxisTitles& axes) {
  constexpr double kHeight = 360, kLeft = 76, kTop = 40, kBottom = kHeight - 50;
  constexpr double kRight = kWidth - 130;
  Svg svg(kWidth, kHeight, title);
  double most_x = 0, most_y = 0;
  for (const ScatterPoint& point : points) {
    if (std::isfinite(point.x)) most_x = std::max(most_x, point.x);
    if (std::isfinite(point.y)) most_y = std::max(most_y, point.y);
  }
  const Scale x{0, most_x > 0 ? most_x * 1.05 : 1, kLeft, kRight, false};
  const Scale y{0, most_y > 0 ? most_y * 1.1 : 1, kBottom, kTop, false};
  const TickText plain = [](double v) { return fmt::format("{:g}", v); };
  DrawXAxis(svg, x, kTop, kBottom, Ticks(x, 6), plain, axes.x);
  DrawYAxis(svg, y, kLeft, kRight, Ticks(y), plain, axes.y);
  std::vector<PlacedLabel> labels;
  for (std::size_t i = 0; i < points.size(); ++i) {
    labels.push_back({i, y(points[i].y) + 4, x(points[i].x)});
  }
  for (const PlacedLabel& label : SpreadBeside(labels, kBottom - 6)) {
    const ScatterPoint& point = points[label.index];
    const Point at{x(point.x), y(point.y)};
    svg.Line({at.x, at.y}, {label.x + 20, label.y - 4}, "leader");
    svg.Text({label.x + 24, label.y}, point.label, "label " + point.css);
    svg.Circle(at, 7, "mark " + point.css,
               fmt::format("{}: {:g}, {}", point.label, point.x, HumanNumber(point.y)));
  }
  return svg.Finish();
}

}  // namespace kvilt::cli::report
