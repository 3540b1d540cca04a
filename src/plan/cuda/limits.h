// What kernels of a GPU cannot do whatever the tile.
#pragma once

#include "kvilt/request.h"
#include "kvilt/status.h"

namespace kvilt::plan::cuda {

// REQUIRES: a validated request. Errors: kUnsupported, naming the field.
Status CheckLimits(const AttentionRequest& request);

}  // namespace kvilt::plan::cuda
