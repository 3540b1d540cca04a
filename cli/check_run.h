// Many problems through CheckProblem on one device, several at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cli/check_problem.h"
#include "kvilt/status.h"
#include "src/core/problem.h"

namespace kvilt::cli {

struct CheckRunOptions {
  std::string device = "cpu";  // "cpu", "cpu:avx2", ...
  int threads = 2;             // Of each opened device; two, so that work is really split.
  bool threads_asked = false;  // As in DeviceArgs.
  int jobs = 0;  // Problems at a time, each on a device of its own; 0 = all hardware threads.
  CheckOptions check;
  // Called after each problem, from one thread at a time.
  std::function<void(std::int64_t done, const CheckResult&)> progress;
};

// Results in the order of the problems. Errors: the device does not open.
Result<std::vector<CheckResult>> RunChecks(std::span<const core::Problem> problems,
                                           const CheckRunOptions& options);

struct CheckSummary {
  std::int64_t problems = 0;
  std::int64_t failures = 0;
  // The passing or failing result with the largest share of its tolerance; without a problem when
  // all were refused.
  CheckResult worst;
};
CheckSummary Summarize(std::span<const CheckResult> results);

// How much of what is accepted a result used up: 1 = at the limit.
double ShareOfTolerance(const CheckResult& result);

}  // namespace kvilt::cli
