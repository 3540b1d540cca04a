#include "cli/check_run.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>
#include <thread>

#include "cli/options.h"

namespace kvilt::cli {

double ShareOfTolerance(const CheckResult& result) {
  if (result.refused) return std::numeric_limits<double>::infinity();
  return std::max(result.error.rel_l2 / result.tolerance, result.error.lse_excess);
}

Result<std::vector<CheckResult>> RunChecks(std::span<const core::Problem> problems,
                                           const CheckRunOptions& options) {
  const auto hardware = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const auto count = static_cast<std::int64_t>(problems.size());
  const std::int64_t jobs = std::clamp<std::int64_t>(options.jobs > 0 ? options.jobs : hardware, 1,
                                                     std::max<std::int64_t>(count, 1));
  std::vector<Device> devices;
  for (std::int64_t i = 0; i < jobs; ++i) {
    auto device = OpenDevice({options.device, options.threads, options.threads_asked});
    if (!device) return device.status();
    devices.push_back(std::move(device).value());
  }
  std::vector<CheckResult> results(problems.size());
  std::atomic<std::int64_t> next = 0;
  std::mutex mutex;
  std::int64_t done = 0;
  const auto work = [&](const Device& device) {
    for (std::int64_t i = next++; i < count; i = next++) {
      CheckResult result =
          CheckProblem(problems[static_cast<std::size_t>(i)], device, options.check);
      const std::lock_guard lock(mutex);
      ++done;
      if (options.progress) options.progress(done, result);
      results[static_cast<std::size_t>(i)] = std::move(result);
    }
  };
  std::vector<std::jthread> workers;
  for (std::int64_t i = 1; i < jobs; ++i) {
    workers.emplace_back([&, i] { work(devices[static_cast<std::size_t>(i)]); });
  }
  work(devices.front());
  workers.clear();  // Joins.
  return results;
}

CheckSummary Summarize(std::span<const CheckResult> results) {
  CheckSummary summary;
  double worst = -1;
  for (const CheckResult& result : results) {
    ++summary.problems;
    if (!result.ok()) ++summary.failures;
    if (result.refused) continue;
    if (const double share = ShareOfTolerance(result); share > worst) {
      worst = share;
      summary.worst = result;
    }
  }
  return summary;
}

}  // namespace kvilt::cli
