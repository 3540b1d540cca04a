#include "cli/bench_planning.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <vector>

#include "kvilt/attention.h"
#include "src/core/check.h"
#include "src/core/problem_data.h"
#include "src/plan/planner.h"

namespace kvilt::cli {
namespace {

constexpr int kRuns = 301;

// The median of so many runs, one by one: each is microseconds, far above the clock's step.
template <class Run>
double MedianUs(Run&& run) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  times.reserve(kRuns);
  for (int i = 0; i < kRuns; ++i) {
    const Clock::time_point begin = Clock::now();
    run();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
  return times[kRuns / 2];
}

double SortUs(std::vector<std::int64_t> lengths) {
  std::mt19937 random(1);
  std::shuffle(lengths.begin(), lengths.end(), random);
  std::vector<std::int64_t> sorted(lengths.size());
  return MedianUs([&] {
    std::copy(lengths.begin(), lengths.end(), sorted.begin());
    std::sort(sorted.begin(), sorted.end());
  });
}

}  // namespace

Result<PlanningTimes> MeasurePlanning(const core::Problem& problem, const DeviceSpec& spec) {
  const Result<core::ProblemData> data = core::BuildProblemShape(problem, spec.kind);
  if (!data.ok()) return data.status();
  const AttentionRequest& request = data->request();
  PlanOptions options = data->plan_options();
  options.check_pages = false;  // TARGETS: times are with it off.
  plan::PlanScratch scratch;
  Plan plan;
  KVILT_RETURN_IF_ERROR(plan::MakePlanWith(request, spec, options, scratch, plan));

  PlanningTimes times;
  times.problem = core::ToText(problem);
  times.device = spec.name;
  times.requests = request.batch();
  times.items = plan.split.items;
  times.plan_data_bytes = plan.plan_data_bytes();
  times.plan_us = MedianUs([&] { KVILT_CHECK(MakePlan(request, spec, options).ok()); });
  times.replan_us = MedianUs([&] { KVILT_CHECK(plan::Replan(request, scratch, plan).ok()); });
  times.sort_us = SortUs(plan.kv_len);
  return times;
}

}  // namespace kvilt::cli
