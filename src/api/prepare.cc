#include <fmt/format.h>

#include "kvilt/attention.h"
#include "src/api/device_impl.h"
#include "src/api/no_memory.h"
#include "src/api/prepared_impl.h"
#include "src/core/check.h"
#include "src/core/log.h"
#include "src/cpu/simd_targets.h"

namespace kvilt {
namespace {

// A Plan is a plain value, so it may have been made by hand or by another version.
Status CheckPlan(const Plan& plan) {
  KVILT_RETURN_IF_ERROR(plan::CheckPlanData(plan.data));
  const plan::PlanDataView view = plan::ViewPlanData(plan.data);
  const contract::PlanHeader& header = *view.header;
  if (header.q_heads != plan.q_heads || header.kv_heads != plan.kv_heads ||
      header.head_dim_qk != plan.head_dim_qk || header.head_dim_vo != plan.head_dim_vo ||
      view.partials().Bytes() != plan.workspace_bytes) {
    return Status::Invalid("plan.data", "of another plan than the rest of this Plan");
  }
  return {};
}

Status CheckDevice(const Device& device, const Plan& plan) {
  if (plan.spec.kind != device.spec().kind) {
    return Status::Precondition("plan.spec", fmt::format("made for {}, the device is {}",
                                                         plan.spec.name, device.spec().name));
  }
  const DeviceSpec& spec = device.spec();
  if (device.impl()->on_gpu()) {
    if (plan.spec.arch == spec.arch && plan.spec.slots == spec.slots) return {};
    return Status::Precondition(
        "plan.spec", fmt::format("made for {} with {} SMs, the device is {} with {}; plan with "
                                 "device.spec()",
                                 plan.spec.name, plan.spec.slots, spec.name, spec.slots));
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
  std::shared_ptr<PreparedPlan::Impl> impl;
  const Status status = api::OrNoMemory("plan", "its handle", [&]() -> Status {
    KVILT_RETURN_IF_ERROR(CheckPlan(plan));
    KVILT_RETURN_IF_ERROR(CheckDevice(device, plan));
    const int path = plan::ViewPlanData(plan.data).header->path;
    if (device.impl()->on_gpu() != (path == static_cast<int>(contract::PathId::kCuda))) {
      return Status::Invalid("plan.data", "of another kind of device than plan.spec");
    }
    impl = std::make_shared<PreparedPlan::Impl>(device, std::move(plan));
    return {};
  });
  if (!status.ok()) return status;
  impl->view = plan::ViewPlanData(impl->plan.data);
  const auto path = static_cast<contract::PathId>(impl->view.header->path);
  if (device.impl()->on_gpu()) {
    const Status made = api::OrNoMemory("plan", "its kernels", [&]() -> Status {
      auto prepared = cuda::PreparedAttention::Create(device.impl()->gpu, impl->plan.data);
      if (!prepared.ok()) return prepared.status();
      impl->gpu = std::move(prepared).value();
      return {};
    });
    if (!made.ok()) return made;
  } else if (cpu::FindBody(path, device.spec().simd) == nullptr) {
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
