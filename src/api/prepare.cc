#include <fmt/format.h>

#include <cstring>
#include <new>

#include "kvilt/attention.h"
#include "src/api/device_impl.h"
#include "src/api/prepared_impl.h"
#include "src/core/check.h"
#include "src/core/log.h"
#include "src/cpu/simd_targets.h"

namespace kvilt {
namespace {

// A Plan is a plain value, so it may have been made by hand or by another version.
Status CheckPlanData(const Plan& plan) {
  contract::PlanHeader header;
  if (plan.data.size() < sizeof(header)) {
    return Status::Invalid("plan.data", "empty; a plan comes from MakePlan");
  }
  std::memcpy(&header, plan.data.data(), sizeof(header));
  if (header.magic != contract::kPlanMagic || header.version != contract::kPlanVersion) {
    return Status::Invalid("plan.data", "not made by MakePlan of this version");
  }
  return {};
}

Status CheckDevice(const Device& device, const Plan& plan) {
  if (plan.spec.kind != device.spec().kind) {
    return Status::Precondition("plan.spec", fmt::format("made for {}, the device is {}",
                                                         plan.spec.name, device.spec().name));
  }
  if (plan.spec.simd != device.spec().simd) {
    return Status::Precondition(
        "plan.spec.simd",
        fmt::format("made for {}, the device runs {}; plan with device.spec(), or open \"cpu:{}\"",
                    Name(plan.spec.simd), Name(device.spec().simd), Name(plan.spec.simd)));
  }
  return {};
}

}  // namespace

void api::LogPlan(std::string_view what, const Plan& plan) {
  if (!core::LogEnabled()) return;
  core::LogLine(
      fmt::format("{} a plan: {} on {} slots, split {}, {} items, {} rows merged, {} bytes "
                  "of workspace",
                  what, plan.path(), plan.spec.slots, Name(plan.split.mode), plan.split.items,
                  plan.split.merged_rows, plan.workspace_bytes));
}

Result<PreparedPlan> Prepare(const Device& device, Plan plan) {
  KVILT_RETURN_IF_ERROR(CheckPlanData(plan));
  KVILT_RETURN_IF_ERROR(CheckDevice(device, plan));
  std::shared_ptr<PreparedPlan::Impl> impl;
  try {
    impl = std::make_shared<PreparedPlan::Impl>(device, std::move(plan));
  } catch (const std::bad_alloc&) {
    return Status::Exhausted("plan", "no host memory");
  }
  impl->view = plan::ViewPlanData(impl->plan.data);
  const auto path = static_cast<contract::PathId>(impl->view.header->path);
  if (cpu::FindBody(path, device.spec().simd) == nullptr) {
    return Status::Unsupported("plan.path",
                               fmt::format("{} does not run on SIMD target {}", impl->plan.path(),
                                           Name(device.spec().simd)));
  }
  api::LogPlan("prepared", impl->plan);
  return PreparedPlan(std::move(impl));
}

const Plan& PreparedPlan::plan() const { return impl_->plan; }
const Device& PreparedPlan::device() const { return impl_->device; }

}  // namespace kvilt
