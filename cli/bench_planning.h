// kvilt bench --planning: what planning costs on the host, beside sorting the batch's lengths.
#pragma once

#include <string>

#include "kvilt/device.h"
#include "kvilt/status.h"
#include "src/core/problem.h"

namespace kvilt::cli {

// Medians, microseconds, of one thread.
struct PlanningTimes {
  std::string problem;
  std::string device;
  std::int64_t requests = 0;
  std::int64_t items = 0;
  std::int64_t plan_data_bytes = 0;
  double plan_us = 0;    // MakePlan from nothing.
  double replan_us = 0;  // Again for the same lengths, as UpdatePlan does: tiles stay, memory too.
  double sort_us = 0;    // std::sort of the batch's key lengths, in shuffled order.
};

// The device of `spec` need not exist.
Result<PlanningTimes> MeasurePlanning(const core::Problem& problem, const DeviceSpec& spec);

}  // namespace kvilt::cli
