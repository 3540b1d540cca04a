// The planner's own entry points: MakePlan with memory that can be used again.
#pragma once

#include "kvilt/attention.h"
#include "src/plan/capacity.h"
#include "src/plan/cuda/cuda_plan.h"
#include "src/plan/key_runs.h"
#include "src/plan/row_blocks.h"
#include "src/plan/validate.h"
#include "src/plan/work_list.h"

namespace kvilt::plan {

// Everything that planning builds on the way. Reused from plan to plan, so that planning again for
// lengths that were once as long allocates nothing. Not thread-safe; one per planning thread.
struct PlanScratch {
  RequestGeometry geometry;
  BlockList blocks;
  KeyCosts costs;
  KeyRuns runs;
  WorkListScratch work;
  cuda::CudaScratch cuda;
  PlanOptions options;  // The plan's, with the workspace of its capacity.
  // What comes out, until it is committed.
  contract::PathId path = contract::PathId::kCpuF32;
  PlanLists lists;              // CPU; a GPU's are written straight into the plan.
  contract::PlanHeader header;  // But for counts and offsets.
  std::vector<Launch> launches;
  SplitSummary split;
  std::vector<LaunchRoom> room;  // With a capacity.
};

// kFixed cannot shrink: `bytes` must fit the limit. `countable`: the bytes fit 63 bits.
Status CheckFixedWorkspace(std::int64_t bytes, bool countable, const PlanOptions& options);

namespace cuda {
// Tiles, pieces and lists of a GPU plan into scratch. `keep_tiles`: the launches of `plan` stay.
Status PlanCuda(const AttentionRequest& request, const ModelDims& dims, const Plan& plan,
                bool keep_tiles, PlanScratch& scratch);
}  // namespace cuda

// MakePlan.
Status MakePlanWith(const AttentionRequest& request, const DeviceSpec& spec,
                    const PlanOptions& options, PlanScratch& scratch, Plan& plan);

// Plans again for other lengths of the same kind of request: path, tiles, launches and (with a
// capacity) the size of plan data stay. On an error the plan is as before.
// Errors: whatever MakePlan finds; kFailedPrecondition names an operand, dtype or option that is
// not the plan's; kResourceExhausted what leaves the capacity.
Status Replan(const AttentionRequest& request, PlanScratch& scratch, Plan& plan);

}  // namespace kvilt::plan
