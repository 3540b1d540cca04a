// Whether the operands of a Run are those that its plan was made for.
#pragma once

#include <cstddef>
#include <span>

#include "kvilt/plan.h"
#include "kvilt/request.h"
#include "src/plan/plan_data.h"

namespace kvilt::api {

// dtypes, shapes and strides as in Plan::signature, base addresses no less aligned.
Status CheckOperands(const Plan& plan, const plan::PlanDataView& view,
                     const AttentionRequest& request);

// Each request's rows, mask bytes, and keys per segment as in the plan, tables that have the pages
// for them, arrays as long as the kernel reads them. Reads host arrays only; page ids are the
// kernel's to check. REQUIRES: CheckOperands passed.
Status CheckLengths(const plan::PlanDataView& view, const AttentionRequest& request);

// Options as hashed. REQUIRES: CheckLengths passed.
Status CheckOptions(const Plan& plan, const AttentionRequest& request);

// Large enough for the plan, aligned to 256, apart from every operand.
Status CheckWorkspace(const Plan& plan, const AttentionRequest& request,
                      std::span<const std::byte> workspace);

// All of the above; and no null where an element is addressed, decode multipliers, out and lse
// apart from each other and from everything that is read.
// Errors are kFailedPrecondition where the operand is legal but not the plan's, kInvalidArgument
// where it is wrong on its own, kResourceExhausted for a workspace that is too small. Allocates
// only to tell of an error.
Status CheckRun(const Plan& plan, const plan::PlanDataView& view, const AttentionRequest& request,
                std::span<const std::byte> workspace);

}  // namespace kvilt::api
