#include "kvilt/attention.h"
#include "src/api/no_memory.h"
#include "src/api/prepared_impl.h"
#include "src/core/check.h"
#include "src/plan/planner.h"

namespace kvilt {

Status UpdatePlan(const PreparedPlan& prepared, const AttentionRequest& request, Stream stream) {
  PreparedPlan::Impl& impl = *prepared.impl();
  if (stream.handle != nullptr) {
    return Status::Invalid("stream", "the CPU has only the default one");
  }
  KVILT_RETURN_IF_ERROR(api::OrNoMemory(
      "plan", "its lists", [&] { return plan::Replan(request, impl.scratch, impl.plan); }));
  impl.view = plan::ViewPlanData(impl.plan.data);
  api::LogPlan("updated", impl.plan);
  return {};
}

}  // namespace kvilt
