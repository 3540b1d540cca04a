// Run, UpdatePlan and LastError of plans on a GPU.
#pragma once

#include <cstddef>
#include <span>

#include "kvilt/attention.h"

namespace kvilt::api {

// REQUIRES: the request was checked against the plan.
Status RunOnGpu(PreparedPlan::Impl& impl, const AttentionRequest& request,
                std::span<std::byte> workspace, Stream stream);
// After impl.plan was planned again.
Status UpdateOnGpu(PreparedPlan::Impl& impl, const AttentionRequest& request, Stream stream);
Status LastErrorOnGpu(PreparedPlan::Impl& impl);

}  // namespace kvilt::api
