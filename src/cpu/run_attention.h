// The CPU backend's attention: runs a plan's work items over a worker pool, then merges splits.
#pragma once

#include <cstddef>

#include "kvilt/device.h"
#include "kvilt/status.h"
#include "src/contract/attention_params.h"
#include "src/cpu/simd_targets.h"
#include "src/cpu/worker_pool.h"
#include "src/plan/plan_data.h"

namespace kvilt::cpu {

// Computes SEMANTICS sections 2 to 5 for every row of the plan; writes every element of their out
// and lse and nothing else. `workspace`: plan.partials().Bytes() bytes aligned to 256 (may be null
// when that is 0), contents undefined before and after.
//
// REQUIRES: `params` belongs to the plan (bound from a request that was checked against it).
// Errors: kUnsupported when the plan's path does not run on `target` here, or does not do what
// the request has; kInvalidArgument when a visible key fell on a page id outside [0, pages):
// such keys count as masked, and the run finishes first.
// Uses the caller's thread as worker 0; the scratch of all workers belongs to the calling thread
// and is kept, so a warm run allocates nothing. The caller's FTZ/DAZ mode neither matters nor
// changes.
Status RunAttention(const plan::PlanDataView& plan, const contract::AttentionParams& params,
                    std::byte* workspace, SimdTarget target, WorkerPool& pool);

}  // namespace kvilt::cpu
