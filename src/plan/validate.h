// Checks a whole request: everything that a user can get wrong, before anything is decided.
//
// SEMANTICS sections 2 to 5. Every refusal names the operand, the field, the value and what is
// accepted; nothing is accepted and then ignored. Reads host arrays, never q, caches or outputs.
// Thread-safe.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "kvilt/attention.h"
#include "kvilt/request.h"
#include "kvilt/status.h"
#include "src/contract/visibility.h"
#include "src/plan/validate_segment.h"

namespace kvilt::plan {

// Lengths and positions stay below this, so that sums of a few of them cannot overflow.
inline constexpr std::int64_t kMaxLength = std::int64_t{1} << 40;

// The request in numbers.
struct RequestGeometry {
  std::int64_t batch = 0;
  int q_heads = 0;
  int kv_heads = 0;
  int group = 0;  // Query heads per KV head.
  int head_dim_qk = 0;
  int head_dim_vo = 0;
  contract::Visibility visibility;
  std::vector<SegmentGeometry> segments;
  std::vector<std::int64_t> q_begin;         // [batch + 1]
  std::vector<std::int64_t> segment_begins;  // [batch][segments + 1], absolute keys.
  std::vector<std::int64_t> mask_begin;      // [batch], bytes; zeros without a mask tensor.

  std::int64_t q_len(std::int64_t r) const {
    return q_begin[static_cast<std::size_t>(r + 1)] - q_begin[static_cast<std::size_t>(r)];
  }
  std::int64_t segment_begin(std::int64_t r, std::int64_t s) const {
    const std::int64_t width = static_cast<std::int64_t>(segments.size()) + 1;
    return segment_begins[static_cast<std::size_t>(r * width + s)];
  }
  std::int64_t kv_len(std::int64_t r) const {
    return segment_begin(r, static_cast<std::int64_t>(segments.size()));
  }
};

// The request against the device kind: operands, tables, options, and CheckMemory. Replaces
// `geometry`, whose memory is used again; on an error it holds nothing of use.
Status Validate(const AttentionRequest& request, DeviceKind device, bool check_pages,
                RequestGeometry& geometry);

// The plan's own options, without a request.
Status CheckPlanOptions(const PlanOptions& options);

// --- Parts of Validate, in the order in which it calls them. ---

// sm_scale, q_scale, soft cap, window, enums.
Status CheckNumbers(const AttentionRequest& request);
// mask_bits and mask_indptr; fills geometry.mask_begin. REQUIRES: lengths are known.
Status CheckMask(const AttentionRequest& request, DeviceKind device, RequestGeometry& geometry);
// q_positions, alibi, sink, rope. REQUIRES: lengths are known.
Status CheckExtras(const AttentionRequest& request, DeviceKind device,
                   const RequestGeometry& geometry);

// The first `count` positions of a host array within +-kMaxLength, so that distances between them
// and keys cannot overflow. `name` is the field's. REQUIRES: size >= count.
Status CheckPositionValues(const IndexArray& positions, std::int64_t count, std::string_view name);

// What depends on addresses and values, which may change from run to run of one plan: null data,
// outputs that overlap inputs, each other or themselves, decode multipliers.
// REQUIRES: shapes and strides were checked. Allocates nothing unless it fails.
Status CheckMemory(const AttentionRequest& request, DeviceKind device);

}  // namespace kvilt::plan
