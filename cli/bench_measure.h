// One measured problem: checked first, then timed over rotated inputs, beside the read ceiling.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "cli/bench_check.h"
#include "kvilt/attention.h"
#include "src/core/problem.h"

namespace kvilt::cli {

struct BenchOptions {
  double seconds = 1.0;  // Of timed runs; at least five runs are made whatever they take.
  std::int64_t input_bytes_limit = std::int64_t{1} << 30;  // Of all input sets together.
  double check_budget = 4e8;                               // Multiply-adds of the oracle.
  std::string tile;                                        // PlanOptions::tile.
};

struct BenchResult {
  std::string problem;
  std::string device;  // With the SIMD target that runs: "cpu:avx2".
  std::string path;
  int threads = 0;
  std::string failure;  // Not empty: no time is given.
  SampleCheck check;
  SplitSummary split;

  std::int64_t runs = 0;
  std::int64_t input_sets = 0;         // Rotated, one a run.
  std::int64_t working_set_bytes = 0;  // KV bytes of all sets.
  bool cold = false;                   // The working set is at least twice the last-level cache.
  double us = 0;                       // Median of one run.
  double us_min = 0;
  double bytes_per_token = 0;  // KV bytes of all heads, scales included, per KV token.
  double ns_per_token = 0;     // Per KV token (of every request) and KV head.
  double gb_per_s = 0;         // KV bytes, scales included, each read once.
  double gflop_per_s = 0;
  double ceiling_gb_per_s = 0;  // A plain read of the working set by as many threads.
  double share_of_ceiling = 0;
};

// Never fails as a call: what went wrong is in `failure`. `stage` hears what is going on.
BenchResult Measure(const core::Problem& problem, const Device& device, const BenchOptions& options,
                    const std::function<void(std::string_view)>& stage);

// Microseconds of each of at least `min_runs` calls of `run(i)`, i counting up, for about
// `seconds`, after one call that is not counted for each i below `warm_up`.
// Stops and returns the error of the first run that fails.
Result<std::vector<double>> TimeRuns(const std::function<Status(std::int64_t)>& run,
                                     std::int64_t warm_up, std::int64_t min_runs, double seconds);

// REQUIRES: not empty.
double Median(std::vector<double> values);

}  // namespace kvilt::cli
