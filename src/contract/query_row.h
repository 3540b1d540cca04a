// A query row as masks and biases see it: one formula for the CPU and for kernels.
#pragma once

#include "attention_params.h"
#include "work_item.h"

namespace kvilt::contract {

struct QueryRow {
  i64 row = 0;    // i, in the request.
  i64 q_row = 0;  // In q, out, lse.
  i64 q_len = 0;
  i64 kv_len = 0;
  i64 position = 0;     // p_i, of windows and of RoPE.
  i64 bias_origin = 0;  // ALiBi counts from here.
  KeyRange visible;
};

// Row i of a request.
constexpr QueryRow MakeQueryRow(const AttentionParams& params, const RequestInfo& request, i64 i) {
  QueryRow out;
  out.row = i;
  out.q_row = request.q_row_begin + i;
  out.q_len = request.q_len;
  out.kv_len = request.kv_len;
  const i64 bottom_right = i + request.kv_len - request.q_len;
  out.position = params.q_positions == nullptr
                     ? bottom_right
                     : LoadIndex(params.q_positions, params.q_position_is_i64, out.q_row);
  out.bias_origin = params.alibi_row_index ? i : bottom_right;
  out.visible = VisibleKeys(params.visibility, i, request.q_len, request.kv_len, out.position);
  return out;
}

constexpr float SlopeOf(const AttentionParams& params, i64 q_head) {
  return params.alibi_slopes == nullptr ? 0.0f : params.alibi_slopes[q_head * params.alibi_stride];
}

// BiasAnchor of the row (visibility.h).
constexpr i64 BiasAnchorOf(const AttentionParams& params, const QueryRow& row, float slope) {
  return BiasAnchor(params.bias_before_cap != 0, row.visible, row.bias_origin, slope);
}

// slope * (anchor - origin), natural units: what the scores of this query head lack.
constexpr double BiasShift(const AttentionParams& params, const QueryRow& row, i64 q_head) {
  if (params.alibi_slopes == nullptr) return 0.0;
  const float slope = SlopeOf(params, q_head);
  return double{slope} * static_cast<double>(BiasAnchorOf(params, row, slope) - row.bias_origin);
}

}  // namespace kvilt::contract
