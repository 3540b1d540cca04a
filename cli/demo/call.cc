#include "cli/demo/call.h"

#include <utility>

#include "cli/bench_measure.h"

namespace kvilt::cli::demo {

Call::Call(AttentionRequest request, std::vector<float> out, PreparedPlan prepared,
           Buffer workspace)
    : request_(std::move(request)),
      out_(std::move(out)),
      prepared_(std::move(prepared)),
      workspace_(std::move(workspace)) {}

Result<Call> Call::Make(const Device& device, AttentionRequest request,
                        const PlanOptions& options) {
  const CacheSide& v = request.segments.front().v();
  const std::int64_t row = v.data.shape[v.data.rank - 1];
  const std::int64_t head_dim = v.data.dtype == DType::kNVFP4 ? 2 * row : row;
  const std::int64_t rows = request.q.shape[0], heads = request.q.shape[1];
  std::vector<float> out(static_cast<std::size_t>(rows * heads * head_dim));
  request.out = TensorView::Dense(out.data(), DType::kF32, {rows, heads, head_dim});
  Result<Plan> plan = MakePlan(request, device.spec(), options);
  if (!plan.ok()) return plan.status();
  Result<Buffer> workspace = Buffer::Allocate(device, plan->workspace_bytes);
  if (!workspace.ok()) return workspace.status();
  Result<PreparedPlan> prepared = Prepare(device, std::move(plan).value());
  if (!prepared.ok()) return prepared.status();
  return Call(std::move(request), std::move(out), std::move(prepared).value(),
              std::move(workspace).value());
}

Status Call::Run() const {
  return kvilt::Run(prepared_, request_,
                    {workspace_.data(), static_cast<std::size_t>(workspace_.size_bytes())});
}

Result<double> Call::MedianUs(std::int64_t min_runs, double seconds) const {
  Result<std::vector<double>> times =
      TimeRuns([this](std::int64_t) { return Run(); }, 1, min_runs, seconds);
  if (!times.ok()) return times.status();
  return Median(std::move(times).value());
}

const float* Call::Row(std::int64_t row, std::int64_t head) const {
  return out_.data() + row * request_.out.stride[0] + head * request_.out.stride[1];
}

}  // namespace kvilt::cli::demo
