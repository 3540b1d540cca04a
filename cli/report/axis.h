// Scales and ticks of plots.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/report/svg.h"

namespace kvilt::cli::report {

// Maps [lo, hi] to pixels [from, to], linearly or by logarithm. Values beyond are clamped and NaN
// counts as lo, so a mark never leaves the plot. REQUIRES lo < hi, and 0 < lo with `log`.
struct Scale {
  double lo = 0;
  double hi = 1;
  double from = 0;
  double to = 1;
  bool log = false;

  double operator()(double value) const;
};

// Round values in [lo, hi]: about `count` for a linear scale, the powers of ten for a log scale
// (with 2 and 5 between when it spans less than three powers).
std::vector<double> Ticks(const Scale& scale, int count = 5);

// The smallest range of powers of ten that holds every positive value; [0.1, 1] when there is none.
// With `fine`, its ends are 1, 2 or 5 times a power.
struct LogRange {
  double lo = 0.1;
  double hi = 1;
};
LogRange PowersAround(const std::vector<double>& values, bool fine = false);

using TickText = std::function<std::string(double)>;

// Grid lines, tick labels and the axis title. `top` to `bottom` is the plot's extent.
void DrawXAxis(Svg& svg, const Scale& x, double top, double bottom,
               const std::vector<double>& ticks, const TickText& text, std::string_view title);
void DrawYAxis(Svg& svg, const Scale& y, double left, double right,
               const std::vector<double>& ticks, const TickText& text, std::string_view title);

}  // namespace kvilt::cli::report
