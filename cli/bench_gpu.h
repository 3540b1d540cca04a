// Times on a GPU: replays of a graph that holds one call for each input set, beside a plain read of
// as many bytes in the same run.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "cli/bench_measure.h"
#include "kvilt/attention.h"

namespace kvilt::cli {

struct GpuTimes {
  std::vector<double> us;  // Of one call, by replay.
  double ceiling_gb_per_s = 0;
  std::int64_t input_sets = 0;
  SampleCheck check;
  Plan plan;
};

// The device is "cuda:N". Results of the first set are checked before anything is timed.
// Errors: of planning and running; kRuntime, where the check fails.
Result<GpuTimes> MeasureOnGpu(const core::Problem& problem, const Device& device,
                              const BenchOptions& options,
                              const std::function<void(std::string_view)>& stage);

}  // namespace kvilt::cli
