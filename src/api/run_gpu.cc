#include "src/api/run_gpu.h"

#include <fmt/format.h>

#include <string>

#include "src/api/bind.h"
#include "src/api/device_impl.h"
#include "src/api/host_tables.h"
#include "src/api/prepared_impl.h"
#include "src/api/rope.h"
#include "src/core/check.h"
#include "src/cuda/attention.h"
#include "src/plan/operands.h"

namespace kvilt::api {
namespace {

cuda::StreamHandle Handle(Stream stream) { return static_cast<cuda::StreamHandle>(stream.handle); }

// Of the calling thread, so that a run allocates nothing once warm.
HostTables& Tables(PreparedPlan::Impl& impl, const AttentionRequest& request) {
  thread_local HostTables tables;
  if (request.rope) FillRopeFrequencies(impl, *request.rope);
  tables.Build(request, impl.rope_frequencies);
  return tables;
}

// What is said to be in device memory must be in this device's.
Status CheckDeviceIndices(const AttentionRequest& request, DeviceId device) {
  const auto check = [&](DeviceId given, const auto& field) {
    if (given.kind != device.kind || given.index == device.index) return Status();
    return Status::Invalid(
        field() + ".device.index",
        fmt::format("{}, the plan is prepared on cuda:{}", given.index, device.index));
  };
  KVILT_RETURN_IF_ERROR(
      plan::ForEachTensor(request, [&](const plan::FieldPath& path, const TensorView& tensor) {
        return check(tensor.device, [&] { return path.str(""); });
      }));
  if (request.rope) {
    KVILT_RETURN_IF_ERROR(check(request.rope->key_positions.device,
                                [] { return std::string("rope.key_positions"); }));
  }
  for (std::size_t s = 0; s < request.segments.size(); ++s) {
    const Segment& segment = request.segments[s];
    const auto named = [s](const char* name) {
      return [s, name] { return fmt::format("segments[{}].{}", s, name); };
    };
    KVILT_RETURN_IF_ERROR(check(segment.k().global.device, named("k.global")));
    KVILT_RETURN_IF_ERROR(check(segment.v().global.device, named("v.global")));
    const PagedKv* const paged = segment.paged();
    if (paged == nullptr) continue;
    KVILT_RETURN_IF_ERROR(check(paged->table.indices.device, named("table.indices")));
  }
  return {};
}

}  // namespace

Status RunOnGpu(PreparedPlan::Impl& impl, const AttentionRequest& request,
                std::span<std::byte> workspace, Stream stream) {
  cuda::PreparedAttention& gpu = *impl.gpu;
  if (impl.gpu_stale) {
    return Status::Precondition("plan", "the last UpdatePlan failed on the device; update again");
  }
  KVILT_RETURN_IF_ERROR(CheckDeviceIndices(request, impl.device.id()));
  const cuda::StreamHandle handle = Handle(stream);
  const HostTables& tables = Tables(impl, request);
  contract::AttentionArgs args;
  args.params =
      BindRequest(request, impl.plan.head_dim_qk,
                  std::span(args.segments).first(request.segments.size()), impl.rope_frequencies);
  args.params.segments = nullptr;  // The kernel has them by value.
  const Result<bool> capturing = impl.device.impl()->gpu->IsCapturing(handle);
  if (!capturing.ok()) return capturing.status();
  const std::lock_guard lock(gpu.mutex());
  const auto image = gpu.images().Get(tables.bytes(), tables.parts(), handle, *capturing);
  if (!image.ok()) return image.status();
  tables.PointInto(cuda::AsPointer((*image)->memory.pointer()), args);
  const Status status = gpu.Run(args, workspace.data(), handle);
  const Status done = gpu.images().Done(**image, handle, *capturing);
  return status.ok() ? done : status;
}

Status UpdateOnGpu(PreparedPlan::Impl& impl, const AttentionRequest& request, Stream stream) {
  impl.gpu_stale = true;
  KVILT_RETURN_IF_ERROR(CheckDeviceIndices(request, impl.device.id()));
  const HostTables& tables = Tables(impl, request);
  const std::lock_guard lock(impl.gpu->mutex());
  KVILT_RETURN_IF_ERROR(impl.gpu->Update(impl.plan.data, Handle(stream)));
  KVILT_RETURN_IF_ERROR(impl.gpu->images().Rewrite(tables.bytes(), tables.parts(), Handle(stream)));
  impl.gpu_stale = false;
  return {};
}

Status CheckNotCapturing(const PreparedPlan::Impl& impl, Stream stream) {
  const Result<bool> capturing = impl.device.impl()->gpu->IsCapturing(Handle(stream));
  if (!capturing.ok()) return capturing.status();
  if (!*capturing) return {};
  return Status::Precondition("stream", "capturing: a graph would repeat this update forever");
}

Status LastErrorOnGpu(PreparedPlan::Impl& impl) {
  const Result<contract::u32> word = impl.gpu->TakeError();
  if (!word.ok()) return word.status();
  if (*word == 0) return {};
  KVILT_CHECK(*word == static_cast<contract::u32>(contract::DeviceError::kAbsentPage));
  return Status::Invalid("segments",
                         "a page table held an id outside the cache; its keys were left out");
}

}  // namespace kvilt::api
