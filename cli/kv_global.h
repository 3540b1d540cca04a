// The decode multiplier that stores given values best.
#pragma once

#include "kvilt/dtype.h"

namespace kvilt::cli {

// For values of largest magnitude `amax`, stored as `dtype`: amax / 2688 for NVFP4 (its whole
// range), amax / largest for fp8 that would clip, else 1; 1 where amax is 0, NaN or infinite. Kept
// within the usual [2^-20, 64], and rounded up, so that the largest element does not count as
// saturated.
float GlobalFor(DType dtype, double amax);

}  // namespace kvilt::cli
