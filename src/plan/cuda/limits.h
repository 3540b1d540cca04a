// What kernels of a GPU cannot do whatever the tile.
#pragma once

#include "kvilt/request.h"
#include "kvilt/status.h"
#include "src/plan/validate.h"

namespace kvilt::plan::cuda {

// REQUIRES: a validated request. Errors: kUnsupported, naming the field.
Status CheckLimits(const AttentionRequest& request, const RequestGeometry& geometry);

}  // namespace kvilt::plan::cuda
