#include "cli/report/axis.h"

#include <algorithm>
#include <cmath>

namespace kvilt::cli::report {
namespace {

// 1, 2 or 5 times a power of ten, at least `step`.
double RoundStep(double step) {
  const double power = std::pow(10.0, std::floor(std::log10(step)));
  for (double multiple : {1.0, 2.0, 5.0}) {
    if (multiple * power >= step * 0.999) return multiple * power;
  }
  return 10 * power;
}

std::vector<double> LogTicks(const Scale& scale) {
  const int first = static_cast<int>(std::floor(std::log10(scale.lo) + 1e-9));
  const int last = static_cast<int>(std::ceil(std::log10(scale.hi) - 1e-9));
  const bool dense = scale.hi < scale.lo * 1000;
  std::vector<double> ticks;
  for (int exponent = first; exponent <= last; ++exponent) {
    for (double multiple : {1.0, 2.0, 5.0}) {
      const double value = multiple * std::pow(10.0, exponent);
      const bool inside = value >= scale.lo * 0.999 && value <= scale.hi * 1.001;
      if (inside && (dense || multiple == 1.0)) ticks.push_back(value);
    }
  }
  return ticks;
}

}  // namespace

double Scale::operator()(double value) const {
  const double clamped = std::isnan(value) ? lo : std::clamp(value, lo, hi);
  const double share = log ? (std::log(clamped) - std::log(lo)) / (std::log(hi) - std::log(lo))
                           : (clamped - lo) / (hi - lo);
  return from + share * (to - from);
}

std::vector<double> Ticks(const Scale& scale, int count) {
  if (scale.log) return LogTicks(scale);
  const double step = RoundStep((scale.hi - scale.lo) / count);
  std::vector<double> ticks;
  for (double k = std::ceil(scale.lo / step - 1e-9); k * step <= scale.hi * (1 + 1e-9); k += 1) {
    ticks.push_back(k * step + 0.0);  // Not -0.
  }
  return ticks;
}

LogRange PowersAround(const std::vector<double>& values, bool fine) {
  double lo = 0, hi = 0;
  for (double value : values) {
    if (!(value > 0) || !std::isfinite(value)) continue;
    lo = lo == 0 ? value : std::min(lo, value);
    hi = std::max(hi, value);
  }
  if (lo == 0) return {};
  LogRange range{std::pow(10.0, std::floor(std::log10(lo))),
                 std::pow(10.0, std::ceil(std::log10(hi)))};
  if (range.hi <= range.lo) range.hi = range.lo * 10;
  if (!fine) return range;
  const double power = range.lo;
  for (double multiple : {2.0, 5.0}) {
    if (power * multiple <= lo) range.lo = power * multiple;
  }
  range.hi = std::max(RoundStep(hi), range.lo * 2);
  return range;
}

void DrawXAxis(Svg& svg, const Scale& x, double top, double bottom,
               const std::vector<double>& ticks, const TickText& text, std::string_view title) {
  for (double tick : ticks) {
    svg.Line({x(tick), top}, {x(tick), bottom}, "grid");
    svg.Text({x(tick), bottom + 18}, text(tick), "tick", Anchor::kMiddle);
  }
  svg.Line({x.from, bottom}, {x.to, bottom}, "axis");
  svg.Text({x.to, bottom + 38}, title, "axis-title", Anchor::kEnd);
}

void DrawYAxis(Svg& svg, const Scale& y, double left, double right,
               const std::vector<double>& ticks, const TickText& text, std::string_view title) {
  for (double tick : ticks) {
    svg.Line({left, y(tick)}, {right, y(tick)}, "grid");
    svg.Text({left - 8, y(tick) + 4}, text(tick), "tick", Anchor::kEnd);
  }
  svg.Text({left, std::min(y.from, y.to) - 14}, title, "axis-title");
}

}  // namespace kvilt::cli::report
