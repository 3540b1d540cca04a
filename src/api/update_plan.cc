#include <fmt/format.h>

#include <new>

#include "kvilt/attention.h"
#include "src/api/prepared_impl.h"
#include "src/core/check.h"
#include "src/plan/signature.h"

namespace kvilt {
namespace {

// Operands, dtypes, ranks, heads and dims stay; extents that follow lengths may change.
Status CheckSameKind(const Plan& now, const Plan& next) {
  const auto same = [](std::string_view field, std::int64_t planned, std::int64_t found) {
    if (planned == found) return Status();
    return Status::Precondition(std::string(field),
                                fmt::format("{}; the plan was made for {}, and an update changes "
                                            "only lengths; make a new plan",
                                            found, planned));
  };
  KVILT_RETURN_IF_ERROR(same("q_heads", now.q_heads, next.q_heads));
  KVILT_RETURN_IF_ERROR(same("kv_heads", now.kv_heads, next.kv_heads));
  KVILT_RETURN_IF_ERROR(same("head_dim_qk", now.head_dim_qk, next.head_dim_qk));
  KVILT_RETURN_IF_ERROR(same("head_dim_vo", now.head_dim_vo, next.head_dim_vo));
  for (std::size_t i = 0; i < now.signature.size() || i < next.signature.size(); ++i) {
    if (i >= next.signature.size() ||
        (i < now.signature.size() && now.signature[i].operand != next.signature[i].operand)) {
      const bool missing = i < now.signature.size();
      return Status::Precondition(missing ? now.signature[i].operand : "request",
                                  "not given; the plan was made with it");
    }
    if (i >= now.signature.size()) {
      return Status::Precondition(next.signature[i].operand, "given; the plan was made without it");
    }
    if (now.signature[i].dtype != next.signature[i].dtype) {
      return Status::Precondition(
          next.signature[i].operand + ".dtype",
          fmt::format("{}; the plan was made for {}", Name(next.signature[i].dtype),
                      Name(now.signature[i].dtype)));
    }
  }
  return {};
}

}  // namespace

Status UpdatePlan(const PreparedPlan& prepared, const AttentionRequest& request, Stream stream) {
  PreparedPlan::Impl& impl = *prepared.impl();
  if (stream.handle != nullptr) {
    return Status::Invalid("stream", "the CPU has only the default one");
  }
  Result<Plan> next = MakePlan(request, impl.plan.spec, impl.plan.options);
  if (!next.ok()) return next.status();
  KVILT_RETURN_IF_ERROR(CheckSameKind(impl.plan, *next));
  if (next->options_hash != impl.plan.options_hash) {
    return Status::Precondition("request",
                                "its options (scales, mask, window, positions, bias, RoPE, sink, "
                                "layouts, owners) are not those of the plan, and an update changes "
                                "only lengths; make a new plan");
  }
  impl.plan = std::move(*next);
  impl.view = plan::ViewPlanData(impl.plan.data);
  api::LogPlan("updated", impl.plan);
  return {};
}

}  // namespace kvilt
