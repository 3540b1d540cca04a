#include <mutex>
#include <vector>

#include "kvilt/attention.h"
#include "src/api/bind.h"
#include "src/api/check_run.h"
#include "src/api/check_stream.h"
#include "src/api/device_impl.h"
#include "src/api/no_memory.h"
#include "src/api/prepared_impl.h"
#include "src/api/rope.h"
#include "src/api/run_gpu.h"
#include "src/core/check.h"
#include "src/cpu/float_mode.h"
#include "src/cpu/run_attention.h"

namespace kvilt {
namespace {

// Scratch of the calling thread: grows to the largest number of segments it has run.
std::span<contract::SegmentParams> SegmentScratch(std::size_t count) {
  thread_local std::vector<contract::SegmentParams> scratch;
  if (scratch.size() < count) scratch.resize(count);
  return std::span(scratch).first(count);
}

void Remember(PreparedPlan::Impl& impl, const Status& error) {
  const std::lock_guard lock(impl.error_mutex);
  if (impl.first_error.ok()) impl.first_error = error;
}

[[gnu::noinline]] Status CheckAndRun(PreparedPlan::Impl& impl, const AttentionRequest& request,
                                     std::span<std::byte> workspace, Stream stream) {
  KVILT_RETURN_IF_ERROR(api::CheckRun(impl.plan, impl.view, request, workspace));
  if (impl.gpu != nullptr) return api::RunOnGpu(impl, request, workspace, stream);
  if (request.rope) api::FillRopeFrequencies(impl, *request.rope);
  const auto segments = SegmentScratch(request.segments.size());
  const contract::AttentionParams params =
      api::BindRequest(request, impl.plan.head_dim_qk, segments, impl.rope_frequencies);
  Device::Impl& device = *impl.device.impl();
  Status status = cpu::RunAttention(impl.view, params, workspace.data(), device.simd, *device.pool);
  if (!status.ok()) Remember(impl, status);
  return status;
}

}  // namespace

void api::FillRopeFrequencies(PreparedPlan::Impl& impl, const Rope& rope) {
  const std::lock_guard lock(impl.rope_mutex);
  if (!impl.rope_frequencies.empty()) return;
  impl.rope_frequencies = RopeFrequencies(rope, impl.plan.head_dim_qk);
}

Status Run(const PreparedPlan& prepared, const AttentionRequest& request,
           std::span<std::byte> workspace, Stream stream) {
  PreparedPlan::Impl& impl = *prepared.impl();
  KVILT_RETURN_IF_ERROR(api::CheckStream(impl.device, stream));
  return api::OrNoMemory("device", "the scratch of its threads", [&] {
    const cpu::ScopedFloatMode mode;
    return CheckAndRun(impl, request, workspace, stream);
  });
}

Status LastError(const PreparedPlan& prepared) {
  PreparedPlan::Impl& impl = *prepared.impl();
  if (impl.gpu != nullptr) return api::LastErrorOnGpu(impl);
  const std::lock_guard lock(impl.error_mutex);
  return std::exchange(impl.first_error, Status());
}

}  // namespace kvilt
