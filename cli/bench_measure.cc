#include "cli/bench_measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>
#include <vector>

#include "cli/bench_ceiling.h"
#include "cli/bench_gpu.h"
#include "cli/machine.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "src/core/check.h"
#include "src/core/problem_data.h"

namespace kvilt::cli {
namespace {

constexpr std::int64_t kMaxInputSets = 512;
constexpr std::int64_t kMinRuns = 5;
constexpr double kCeilingSeconds = 0.2;

// Sets that make the working set twice the last-level cache, within the limit.
std::int64_t InputSets(std::int64_t kv_bytes, std::int64_t cache_bytes, std::int64_t limit_bytes) {
  kv_bytes = std::max<std::int64_t>(kv_bytes, 1);
  const std::int64_t wanted = (2 * cache_bytes + kv_bytes - 1) / kv_bytes;
  return std::clamp<std::int64_t>(std::min(wanted, limit_bytes / kv_bytes), 1, kMaxInputSets);
}

// Everything that the timed runs need.
struct Bench {
  std::vector<core::ProblemData> sets;
  PreparedPlan prepared;
  Buffer workspace;

  Status RunSet(std::int64_t i) const {
    const core::ProblemData& set = sets[static_cast<std::size_t>(i) % sets.size()];
    return Run(prepared, set.request(),
               {workspace.data(), static_cast<std::size_t>(workspace.size_bytes())});
  }
};

Result<Bench> SetUp(core::ProblemData first, const Device& device, const std::string& tile) {
  PlanOptions plan_options = first.plan_options();
  plan_options.tile = tile;
  Result<Plan> plan = MakePlan(first.request(), device.spec(), plan_options);
  if (!plan.ok()) return plan.status();
  const std::int64_t workspace_bytes = plan->workspace_bytes;
  Result<PreparedPlan> prepared = Prepare(device, std::move(plan).value());
  if (!prepared.ok()) return prepared.status();
  Result<Buffer> workspace = Buffer::Allocate(device, workspace_bytes);
  if (!workspace.ok()) return workspace.status();
  std::vector<core::ProblemData> sets;
  sets.push_back(std::move(first));
  return Bench{std::move(sets), std::move(prepared).value(), std::move(workspace).value()};
}

Status AddSets(Bench& bench, std::int64_t count) {
  core::Problem problem = bench.sets.front().problem();
  while (static_cast<std::int64_t>(bench.sets.size()) < count) {
    ++problem.seed;  // Other values, other page order.
    Result<core::ProblemData> data = core::BuildProblem(problem);
    if (!data.ok()) return data.status();
    bench.sets.push_back(std::move(data).value());
  }
  return Status::Ok();
}

void FillRates(BenchResult& result, const Plan& plan, std::vector<double> times) {
  result.runs = static_cast<std::int64_t>(times.size());
  result.us_min = *std::min_element(times.begin(), times.end());
  result.us = Median(std::move(times));
  const auto tokens =
      static_cast<double>(std::accumulate(plan.kv_len.begin(), plan.kv_len.end(), std::int64_t{0}));
  if (tokens > 0) {
    result.ns_per_token = result.us * 1e3 / tokens / plan.kv_heads;
    result.bytes_per_token = static_cast<double>(plan.kv_bytes) / tokens;
  }
  result.gb_per_s = static_cast<double>(plan.kv_bytes) / result.us * 1e-3;
  result.gflop_per_s = plan.flops / result.us * 1e-3;
  if (result.ceiling_gb_per_s > 0) {
    result.share_of_ceiling = result.gb_per_s / result.ceiling_gb_per_s;
  }
}

Status MeasureGpuInto(BenchResult& result, const core::Problem& problem, const Device& device,
                      const BenchOptions& options,
                      const std::function<void(std::string_view)>& stage) {
  Result<GpuTimes> times = MeasureOnGpu(problem, device, options, stage);
  if (!times.ok()) return times.status();
  result.path = times->plan.path();
  result.split = times->plan.split;
  result.check = times->check;
  result.input_sets = times->input_sets;
  result.working_set_bytes = times->plan.kv_bytes * times->input_sets;
  result.cold = result.working_set_bytes >= 2 * device.spec().l2_bytes;
  result.ceiling_gb_per_s = times->ceiling_gb_per_s;
  FillRates(result, times->plan, std::move(times->us));
  return Status::Ok();
}

// Fills `result`; an error means that no time can be given.
Status MeasureInto(BenchResult& result, const core::Problem& problem, const Device& device,
                   const BenchOptions& options,
                   const std::function<void(std::string_view)>& stage) {
  if (device.spec().kind == DeviceKind::kCuda) {
    return MeasureGpuInto(result, problem, device, options, stage);
  }
  stage("building the data");
  Result<core::ProblemData> data = core::BuildProblem(problem);
  if (!data.ok()) return data.status();
  Result<Bench> bench = SetUp(std::move(data).value(), device, options.tile);
  if (!bench.ok()) return bench.status();
  const Plan& plan = bench->prepared.plan();
  result.path = plan.path();
  result.split = plan.split;

  stage("checking against float64");
  KVILT_RETURN_IF_ERROR(bench->RunSet(0));
  result.check = CheckSample(bench->sets.front().request(), plan, options.check_budget,
                             problem.data != core::DataForm::kExtreme);
  if (const std::string problem_found = result.check.Problem(); !problem_found.empty()) {
    return Status::Runtime("check", problem_found);
  }

  stage("building input sets");
  const std::int64_t cache_bytes = ThisMachine().l3_bytes;
  KVILT_RETURN_IF_ERROR(
      AddSets(*bench, InputSets(plan.kv_bytes, cache_bytes, options.input_bytes_limit)));
  result.input_sets = static_cast<std::int64_t>(bench->sets.size());
  result.working_set_bytes = plan.kv_bytes * result.input_sets;
  result.cold = cache_bytes > 0 && result.working_set_bytes >= 2 * cache_bytes;

  stage("reading, for the ceiling");
  result.ceiling_gb_per_s =
      ReadCeilingGbPerS(result.working_set_bytes, result.threads, kCeilingSeconds);
  stage("timing");
  Result<std::vector<double>> times = TimeRuns([&](std::int64_t i) { return bench->RunSet(i); },
                                               result.input_sets, kMinRuns, options.seconds);
  if (!times.ok()) return times.status();
  FillRates(result, plan, std::move(times).value());
  return Status::Ok();
}

}  // namespace

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Result<std::vector<double>> TimeRuns(const std::function<Status(std::int64_t)>& run,
                                     std::int64_t warm_up, std::int64_t min_runs, double seconds) {
  using Clock = std::chrono::steady_clock;
  for (std::int64_t i = 0; i < warm_up; ++i) KVILT_RETURN_IF_ERROR(run(i));
  std::vector<double> times;
  double spent = 0;
  for (std::int64_t i = 0; i < min_runs || spent < seconds; ++i) {
    const auto begin = Clock::now();
    const Status status = run(i);
    const std::chrono::duration<double> took = Clock::now() - begin;
    if (!status.ok()) return status;
    times.push_back(took.count() * 1e6);
    spent += took.count();
  }
  return times;
}

BenchResult Measure(const core::Problem& problem, const Device& device, const BenchOptions& options,
                    const std::function<void(std::string_view)>& stage) {
  BenchResult result;
  result.problem = core::ToText(problem);
  result.device = DeviceName(device);
  result.threads = device.spec().slots;
  const Status status = MeasureInto(result, problem, device, options, stage);
  if (!status.ok()) result.failure = status.message();
  return result;
}

}  // namespace kvilt::cli
