// The correctness gate of a benchmark: the result just computed against the float64 oracle, on as
// much of the problem as a budget of work allows.
#pragma once

#include <cstdint>
#include <string>

#include "kvilt/plan.h"
#include "kvilt/request.h"

namespace kvilt::cli {

// The same request restricted to KV heads [begin, begin + count) and their query heads: views into
// the same memory. REQUIRES: a request that MakePlan accepts, 0 <= begin, 0 < count,
// begin + count <= kv_heads.
AttentionRequest KvHeadRange(const AttentionRequest& request, std::int64_t begin,
                             std::int64_t count);

struct SampleCheck {
  double rel_l2 = 0;         // SEMANTICS section 4, against float64 on the same dequantized bytes.
  double rel_l2_limit = 0;   // What SEMANTICS section 4 allows for the accuracy and output dtype.
  double lse_excess = 0;     // Of the allowed lse error; 1 is the limit.
  std::int64_t rows = 0;     // Query rows that were compared,
  std::int64_t q_heads = 0;  // and query heads of each.
  // Of the whole output, not of a sample. -inf in lse is an empty row's and does not count.
  std::int64_t out_not_finite = 0;
  std::int64_t lse_not_finite = 0;

  bool passed() const { return Problem().empty(); }
  std::string Problem() const;  // What is wrong, with figures; empty when nothing is.
};

// Compares request.out and request.lse as they are in memory. Rows are thinned out first, then KV
// heads, both evenly with the first and the last kept, until rows * heads * keys * dims is near
// `budget` multiply-adds. Infinities and NaN are looked for in all of out and lse, whatever the
// budget. `averaged`: see ToleranceOf.
SampleCheck CheckSample(const AttentionRequest& request, const Plan& plan, double budget,
                        bool averaged = true);

}  // namespace kvilt::cli
