// What a plan was made for, so that a run can tell whether its request is still that.
#pragma once

#include <cstdint>
#include <vector>

#include "kvilt/plan.h"
#include "kvilt/request.h"

namespace kvilt::plan {

// One entry per given tensor, in the order of operands.h.
std::vector<OperandSignature> MakeSignature(const AttentionRequest& request);

// Whether a request is of the kind that the plan was made for: operands, dtypes, ranks, heads, dims
// and options; extents that follow lengths may differ. Errors: kFailedPrecondition names the field.
// Allocates nothing unless it fails.
Status CheckSameKind(const AttentionRequest& request, const Plan& plan);
// Shapes, strides and alignments of a request of the same kind. Allocates nothing.
void UpdateSignature(const AttentionRequest& request, std::vector<OperandSignature>& signature);

// The widest copies that base and strides of each operand's rows allow. Only tensors with rows
// (rank >= 3). SEMANTICS section 2.
std::vector<CopyWidth> MakeCopyWidths(const AttentionRequest& request);

// A hash of everything that a plan depends on or a run computes with and that is neither a tensor,
// a length nor a decode multiplier: scalar options, enums, layouts, owners, which optional parts
// are given. Allocates nothing.
std::uint64_t OptionsHash(const AttentionRequest& request);

// Of the values of q_positions when a window reads them at plan time, else 0. Apart from the
// options because positions move on with the lengths (UpdatePlan). Allocates nothing.
// REQUIRES: q_indptr is a host array, and so is q_positions when given with a window.
std::uint64_t PositionsHash(const AttentionRequest& request);

}  // namespace kvilt::plan
