// One attention call of the demo: planned, prepared, with outputs and workspace of its own.
#pragma once

#include <cstdint>
#include <vector>

#include "kvilt/attention.h"

namespace kvilt::cli::demo {

// Movable. The request's caches and queries are borrowed.
class Call {
 public:
  // `request` without out; f32 [rows, q_heads, head_dim_vo] is given to it.
  static Result<Call> Make(const Device& device, AttentionRequest request,
                           const PlanOptions& options = {});

  Status Run() const;
  // Median microseconds of at least `min_runs` runs and about `seconds`, after one that warms up.
  Result<double> MedianUs(std::int64_t min_runs, double seconds) const;

  const Plan& plan() const { return prepared_.plan(); }
  const AttentionRequest& request() const { return request_; }
  const std::vector<float>& out() const { return out_; }  // Of the last run.
  const float* Row(std::int64_t row, std::int64_t head) const;

 private:
  Call(AttentionRequest request, std::vector<float> out, PreparedPlan prepared, Buffer workspace);

  AttentionRequest request_;
  std::vector<float> out_;
  PreparedPlan prepared_;
  Buffer workspace_;
};

}  // namespace kvilt::cli::demo
