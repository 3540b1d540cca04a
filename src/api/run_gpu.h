// Run, UpdatePlan and LastError of plans on a GPU.
#pragma once

#include <cstddef>
#include <span>

#include "kvilt/attention.h"

namespace kvilt::api {

// REQUIRES: the request was checked against the plan.
Status RunOnGpu(PreparedPlan::Impl& impl, const AttentionRequest& request,
                std::span<std::byte> workspace, Stream stream);
// Before planning again. Errors: kFailedPrecondition.
Status CheckNotCapturing(const PreparedPlan::Impl& impl, Stream stream);
// After impl.plan was planned again. On an error runs are refused until an update succeeds.
Status UpdateOnGpu(PreparedPlan::Impl& impl, const AttentionRequest& request, Stream stream);
Status LastErrorOnGpu(PreparedPlan::Impl& impl);

}  // namespace kvilt::api
