// The public request, flattened into the contract's params: the one place where strides become
// bytes and optional operands become null pointers.
#pragma once

#include <span>

#include "kvilt/request.h"
#include "src/contract/attention_params.h"

namespace kvilt::api {

// One segment. Also what AppendKv, DequantizeKv and CopyPages address caches by.
// The result borrows from `segment` (a global given by value is pointed to, inside it).
// REQUIRES: a segment that the checks of src/plan accepted.
contract::SegmentParams BindSegment(const Segment& segment);

// Borrows from everything it is given. `segments`: scratch, one entry per request.segments.
// `rope_frequencies`: of RopeFrequencies, read only when request.rope is set.
// REQUIRES: a request that planning accepted, with head dims as in the plan.
contract::AttentionParams BindRequest(const AttentionRequest& request, int head_dim_qk,
                                      std::span<contract::SegmentParams> segments,
                                      std::span<const double> rope_frequencies);

}  // namespace kvilt::api
