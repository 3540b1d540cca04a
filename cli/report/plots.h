// The plots of the report. Each takes plain numbers and returns one SVG element; series are
// labelled where they are drawn, so there are no legends to look up. `css` names a series colour of
// style.h, "c0" to "c4".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvilt::cli::report {

// Two positive values a row on a shared log axis; 0 = absent.
struct DumbbellRow {
  std::string label;
  std::string note;  // Small, under the label.
  std::string css;
  double low = 0;   // Drawn hollow.
  double high = 0;  // Drawn filled.
};
struct DumbbellNames {
  std::string low;
  std::string high;
  std::string axis;
};
std::string DumbbellPlot(std::string_view title, const std::vector<DumbbellRow>& rows,
                         const DumbbellNames& names);

// Horizontal bars from 0, each of stacked parts.
struct BarPart {
  double value = 0;
  std::string css;
  std::string tip;
};
struct BarRow {
  std::string label;
  std::vector<BarPart> parts;
  std::string text;  // At the bar's end.
};
// `mark` > 0 draws a labelled reference line there.
struct BarMark {
  double value = 0;
  std::string text;
};
std::string BarPlot(std::string_view title, const std::vector<BarRow>& rows, std::string_view axis,
                    const BarMark& mark = {});

struct ScatterPoint {
  double x = 0;
  double y = 0;
  std::string label;
  std::string css;
};
// Both axes linear, from 0.
struct AxisTitles {
  std::string x;
  std::string y;
};
std::string ScatterPlot(std::string_view title, const std::vector<ScatterPoint>& points,
                        const AxisTitles& axes);

// Curves of time over context, both axes logarithmic.
struct CurvePoint {
  double tokens = 0;
  double us = 0;
};
struct Curve {
  std::string label;
  std::string css;
  bool dashed = false;
  std::vector<CurvePoint> points;
};
std::string TimePlot(std::string_view title, const std::vector<Curve>& curves);

// Two histograms over the same positions, one upwards and one downwards, on a square-root axis so
// that small masses can be seen. Values are shares of 1.
struct MirrorSeries {
  std::string label;
  std::string css;
  std::vector<double> shares;
};
struct MirrorMark {
  double position = 0;  // In tokens.
  std::string text;
};
std::string MirrorPlot(std::string_view title, const MirrorSeries& up, const MirrorSeries& down,
                       double bin_tokens, const MirrorMark& mark);

}  // namespace kvilt::cli::report
