#include <new>

#include "kvilt/attention.h"
#include "src/api/prepared_impl.h"
#include "src/core/check.h"
#include "src/plan/planner.h"

namespace kvilt {

Status UpdatePlan(const PreparedPlan& prepared, const AttentionRequest& request, Stream stream) {
  PreparedPlan::Impl& impl = *prepared.impl();
  if (stream.handle != nullptr) {
    return Status::Invalid("stream", "the CPU has only the default one");
  }
  try {
    KVILT_RETURN_IF_ERROR(plan::Replan(request, impl.scratch, impl.plan));
  } catch (const std::bad_alloc&) {
    return Status::Exhausted("plan", "no host memory");
  }
  impl.view = plan::ViewPlanData(impl.plan.data);
  api::LogPlan("updated", impl.plan);
  return {};
}

}  // namespace kvilt
