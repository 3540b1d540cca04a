// The correctness gate of a benchmark: the result just computed against the float64 oracle, on as
// much of the problem as a budget of work allows.
#pragma once

#include <cstdint>

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

  bool passed() const { return rel_l2 <= rel_l2_limit && lse_excess <= 1; }
};

// Compares request.out and request.lse as they are in memory. Rows are thinned out first (evenly,
// first and last kept), then KV heads (the last ones stay), until rows * heads * keys * dims is
// near `budget` multiply-adds. `averaged`: see ToleranceOf.
SampleCheck CheckSample(const AttentionRequest& request, const Plan& plan, double budget,
                        bool averaged = true);

}  // namespace kvilt::cli
