// The judge: attention in float64, dense, three loops (SEMANTICS sections 2 and 3). It shares no
// code with any backend nor with src/contract: formats, masks, RoPE and softmax are its own.
#pragma once

#include <cstdint>
#include <vector>

#include "kvilt/request.h"
#include "kvilt/status.h"

namespace kvilt::oracle {

struct Reference {
  std::vector<std::int64_t> rows;  // Rows of q, ascending, that were computed.
  std::int64_t q_heads = 0;
  std::int64_t head_dim_vo = 0;
  std::vector<double> out;  // [rows][q_heads][head_dim_vo], V's global applied, not rounded.
  std::vector<double> lse;  // [rows][q_heads] in the request's base; -inf for an empty row.
  // [rows][q_heads]: || sum_j p_j |v_j| ||, the norm over head_dim of the sum of magnitudes.
  std::vector<double> magnitude;
};

// The attention of the rows that requests own (extra rows behind them are not computed). With
// max_rows > 0, only that many rows, evenly spaced, the first and last of the batch included: for
// problems too large to compute whole.
// REQUIRES: a request that MakePlan accepts, all operands on the host.
Reference Attention(const AttentionRequest& request, std::int64_t max_rows = 0);

// SEMANTICS section 4: error = ||out - ref|| / || sum_j p_j |v_j| ||.
struct Error {
  // Over the whole tensor: sqrt(sum of squared errors / sum of squared magnitudes). This is the
  // figure that tolerances are about and that tests and `kvilt check` assert.
  double rel_l2 = 0;
  // The same, less what one rounding to the dtype of out explains: up to half an ulp of each
  // element. Where rows see few keys of a coarse format, roundings are alike and do not average out
  // to the 2e-3 (bf16) that tolerances reckon with; then this figure, held to the kernel's bound,
  // decides.
  double kernel_rel_l2 = 0;
  // The worst single (row, head), less what rounding to the dtype of out explains (a row that the
  // sink all but empties is subnormal in f16), asserted at twice the tolerance: with two or three
  // keys that share the weight, one rounding of a probability is not averaged out.
  double worst_row_rel_l2 = 0;
  std::int64_t worst_row = -1;
  std::int64_t worst_head = -1;
  double lse_err = 0;     // max |lse - ref|; +inf when one is infinite and the other is not.
  double lse_excess = 0;  // max of |lse - ref| / (1e-3 + 2^-21 |ref|); accepted up to 1.
  // max |lse| of the reference in natural units, finite ones: how large scores were. f32 resolves
  // them no better than 2^-24 of it, and a probability no better than that.
  double largest_lse = 0;
  // Elements of out or lse that are NaN, which no accepted request yields: unwritten or poisoned.
  // They count as rel_l2 = lse_err = +inf.
  std::int64_t nan_elements = 0;
};

// Compares request.out and request.lse, as they are in memory, with the reference. A row whose
// magnitude is 0 must be 0. Differences of an element up to 2^-126 (f16: 2^-25) are underflow, not
// error: a sink or a bias may leave all keys together a weight of e^-100.
Error ErrorAgainst(const Reference& reference, const AttentionRequest& request);
Error ErrorAgainst(const AttentionRequest& request, std::int64_t max_rows = 0);

}  // namespace kvilt::oracle
