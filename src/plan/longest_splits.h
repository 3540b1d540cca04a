// Fits a workspace by making splits longer.
#pragma once

#include <cmath>

namespace kvilt::plan {

// `fits(factor)` cuts into splits of `factor` times the ideal cost (0: none at all) and says
// whether their partials fit. Leaves the shortest splits that do, by eighths of an octave: splits
// shrink as factors grow, so bisection finds the first; beyond 2^32 nothing is split any more.
// False when even uncut work does not fit.
template <class Fits>
bool FitLongerSplits(Fits&& fits) {
  if (!fits(0.0)) return false;
  int low = 0;
  int high = 8 * 32;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (fits(std::exp2(middle / 8.0)) ? high : low) = middle;
  }
  return fits(std::exp2(high / 8.0)) || fits(0.0);
}

}  // namespace kvilt::plan
