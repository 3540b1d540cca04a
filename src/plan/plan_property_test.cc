// Properties of every plan: each visible key of each row once, partials apart, limits kept.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "src/plan/plan_checks.h"

namespace kvilt::plan {
namespace {

RC_GTEST_PROP(PlanProperty, EachVisibleKeyOnceAndPartialsApart, ()) {
  const RandomCase c = MakeRandomCase();
  const Plan plan = MakePlan(c.request(), c.spec, c.options).value();
  CheckPlan(c.request(), plan);
  const PlanDataView view = ViewPlanData(plan.data);
  for (std::size_t i = 1; i < view.items.size(); ++i) {
    RC_ASSERT(view.items[i - 1].cost >= view.items[i].cost);
  }
  RC_TAG(std::string(Name(plan.split.mode)) + (plan.split.max_splits > 1 ? " split" : "") +
         (plan.split.cascade_items > 0 ? " cascade" : ""));
}

RC_GTEST_PROP(PlanProperty, EqualInputsMakeEqualPlans, ()) {
  const RandomCase c = MakeRandomCase();
  RC_ASSERT(MakePlan(c.request(), c.spec, c.options).value() ==
            MakePlan(c.request(), c.spec, c.options).value());
}

// The size query holds for every mode; and kAuto fits whatever it is given.
RC_GTEST_PROP(PlanProperty, P30_WorkspaceNeverExceedsTheQueryAndAutoFitsAnyLimit, ()) {
  RandomCase c = MakeRandomCase();
  CheckWorkspaceFits(c, [&](const Plan& plan) { CheckPlan(c.request(), plan); });
}

// The splits of one request, whoever shares the batch.
using RequestSplits = std::vector<std::tuple<i64, i64, i64, i64, i64>>;
RequestSplits SplitsOf(const Plan& plan, std::int64_t request) {
  RequestSplits splits;
  for (const WorkItemInfo& info : WorkItems(plan)) {
    if (info.request != request) continue;
    splits.emplace_back(info.row_begin, info.row_end, info.split, info.key_begin, info.key_end);
  }
  std::sort(splits.begin(), splits.end());
  splits.erase(std::unique(splits.begin(), splits.end()), splits.end());
  return splits;
}

// kFixed: cuts at multiples of n and at segment borders, the same alone and in a batch.
RC_GTEST_PROP(PlanProperty, P42_FixedSplitsDependOnTheRequestAlone, ()) {
  const std::int64_t n = OneOf<std::int64_t>({17, 64, 100, 256, 1024});
  const std::int64_t prefix = OneOf<std::int64_t>({0, 100, 4096});
  const std::int64_t own = Pick(1, 9000);
  const std::int64_t q_len = OneOf<std::int64_t>({1, 4, 40});
  const std::int64_t others = Pick(1, 20);
  const std::int64_t slot = Pick(0, others);
  const DeviceSpec spec = CpuSpec(SimdTarget::kAvx512Bf16, 2);
  PlanOptions options;
  options.split = SplitMode::kFixed;
  options.fixed_split_rows = n;

  const auto plan_of = [&](bool batched) {
    RequestOptions request;
    SegmentOptions shared;
    SegmentOptions tail;
    shared.kv_len = {prefix};
    for (std::int64_t r = 0; r <= (batched ? others : 0); ++r) {
      const bool is_it = !batched || r == slot;
      request.q_len.push_back(is_it ? q_len : Pick(0, 5));
      tail.kv_len.push_back(is_it ? own : Pick(0, 3000));
      shared.owners.push_back(static_cast<std::int32_t>(r));
    }
    request.segments = {shared, tail};
    RequestBuilder builder(request);
    builder.request.window_left = 6000;
    return MakePlan(builder.request, spec, options).value();
  };
  const RequestSplits alone = SplitsOf(plan_of(false), 0);
  RC_ASSERT(SplitsOf(plan_of(true), slot) == alone);
  for (const auto& [row_begin, row_end, split, key_begin, key_end] : alone) {
    if (split > 0) RC_ASSERT(key_begin % n == 0 || key_begin == prefix);
    RC_ASSERT(key_end - key_begin <= n);
  }
}

// P38: what is read is what some row of the block sees; a window bounds it, wherever it lies.
RC_GTEST_PROP(PlanProperty, P38_ItemsStayInsideTheWindow, ()) {
  RandomCase c = MakeRandomCase(true);
  AttentionRequest& request = c.builder->request;
  request.window_left = Pick(0, 2000);
  request.window_right = -1;
  request.q_positions = {};
  const Plan plan = MakePlan(request, c.spec, c.options).value();
  for (const WorkItemInfo& info : WorkItems(plan)) {
    const std::int64_t kv_len = plan.kv_len[static_cast<std::size_t>(info.request)];
    RC_ASSERT(info.key_begin >= kv_len - 1 - request.window_left);
  }
}

}  // namespace
}  // namespace kvilt::plan
