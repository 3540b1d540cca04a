// What a PreparedPlan handle points to.
#pragma once

#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "kvilt/attention.h"
#include "src/cuda/attention.h"
#include "src/plan/plan_data.h"
#include "src/plan/planner.h"

namespace kvilt {

namespace api {
// A line about a plan for KVILT_LOG=info.
void LogPlan(std::string_view what, const Plan& plan);
// At the first run of a plan with RoPE.
void FillRopeFrequencies(PreparedPlan::Impl& impl, const Rope& rope);
}  // namespace api

struct PreparedPlan::Impl {
  Impl(Device on, Plan made) : device(std::move(on)), plan(std::move(made)) {}

  const Device device;
  Plan plan;                  // Replaced by UpdatePlan.
  plan::PlanDataView view;    // Of plan.data.
  plan::PlanScratch scratch;  // Of UpdatePlan.

  // Filled by the first Run of a plan with RoPE: the options hash fixes every number they come
  // from, so they hold for all later runs and updates.
  // A mutex and no once_flag: memory may lack the first time, and a call_once that threw never
  // ends again under TSan, nor on every platform.
  std::mutex rope_mutex;
  std::vector<double> rope_frequencies;

  std::unique_ptr<cuda::PreparedAttention> gpu;  // Null on the CPU.
  bool gpu_stale = false;                        // An update reached `plan` and not the device.

  std::mutex error_mutex;
  Status first_error;  // Since the last LastError.
};

}  // namespace kvilt
