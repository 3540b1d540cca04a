#include <gtest/gtest.h>

#include <set>

#include "kvilt/attention.h"
#include "src/contract/work_item.h"
#include "src/plan/paths.h"
#include "src/plan/plan_data.h"
#include "src/plan/request_builder.h"

namespace kvilt::plan {
namespace {

DeviceSpec TwoSlots() { return CpuSpec(SimdTarget::kAvx512Bf16, 2); }

TEST(Planner, DecodeIsSplitAcrossSlots) {
  RequestBuilder builder(Decode({131072}));
  const Plan plan = MakePlan(builder.request, TwoSlots()).value();
  EXPECT_EQ(plan.path, "cpu/avx512_bf16");
  EXPECT_EQ(plan.split.items, 8);
  EXPECT_EQ(plan.split.max_splits, 8);
  EXPECT_EQ(plan.split.merged_rows, 1);
  EXPECT_LE(plan.split.balance, 1.01);
  EXPECT_EQ(plan.kv_bytes, 131072LL * 8 * 128 * 2 * 2);
  EXPECT_DOUBLE_EQ(plan.flops, 2.0 * 131072 * 32 * 256);
}

}  // namespace
}  // namespace kvilt::plan
