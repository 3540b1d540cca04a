#include "kvilt/attention.h"
#include "src/api/check_stream.h"
#include "src/api/no_memory.h"
#include "src/api/prepared_impl.h"
#include "src/api/run_gpu.h"
#include "src/core/check.h"
#include "src/plan/planner.h"

namespace kvilt {

Status UpdatePlan(const PreparedPlan& prepared, const AttentionRequest& request, Stream stream) {
  PreparedPlan::Impl& impl = *prepared.impl();
  KVILT_RETURN_IF_ERROR(api::CheckStream(impl.device, stream));
  Status updated = api::OrNoMemory("plan", "its lists", [&]() -> Status {
    if (impl.gpu != nullptr) {
      if (Status free = api::CheckNotCapturing(impl, stream); !free.ok()) return free;
    }
    KVILT_RETURN_IF_ERROR(plan::Replan(request, impl.scratch, impl.plan));
    impl.view = plan::ViewPlanData(impl.plan.data);
    return impl.gpu == nullptr ? Status() : api::UpdateOnGpu(impl, request, stream);
  });
  if (!updated.ok()) return updated;
  api::LogPlan("updated", impl.plan);
  return {};
}

}  // namespace kvilt
