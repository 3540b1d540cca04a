// Planning again: no allocation once warm, all or nothing, stale plans are found.
#include <gtest/gtest.h>

#include <vector>

#include "src/api/allocation_count.h"
#include "src/plan/device_table.h"
#include "src/plan/paths.h"
#include "src/plan/planner.h"
#include "src/plan/request_builder.h"

namespace kvilt::plan {
namespace {

using api::test::AllocationCount;

// A batch of decode, verify and prefill whose keys can be shortened in place.
struct Batch {
  explicit Batch(DeviceKind device, std::int64_t requests = 64) {
    RequestOptions options;
    SegmentOptions segment;
    segment.k = segment.v = DType::kNVFP4;
    for (std::int64_t r = 0; r < requests; ++r) {
      options.q_len.push_back(r % 16 == 15 ? 300 : r % 4 == 3 ? 4 : 1);
      segment.kv_len.push_back(2000 + 997 * r % 30000);
    }
    kv_len = segment.kv_len;
    options.segments = {segment};
    builder = std::make_unique<RequestBuilder>(options);
    builder->Place(device);
    std::get<PagedKv>(builder->request.segments[0].kv).table.kv_len =
        IndexArray(std::span<const std::int64_t>(kv_len));
  }
  const AttentionRequest& request() const { return builder->request; }

  std::vector<std::int64_t> kv_len;
  std::unique_ptr<RequestBuilder> builder;
};

PlanCapacity Capacity(const Plan& plan) {
  PlanCapacity capacity;
  capacity.q_heads = plan.q_heads;
  capacity.kv_heads = plan.kv_heads;
  capacity.head_dim_qk = plan.head_dim_qk;
  capacity.head_dim_vo = plan.head_dim_vo;
  capacity.requests = static_cast<std::int64_t>(plan.q_len.size());
  for (const std::int64_t q_len : plan.q_len) capacity.query_rows += q_len;
  capacity.kv_len = 40000;
  return capacity;
}

TEST(Replan, P46_AllocatesNothingOnceWarm) {
  for (const DeviceSpec& spec : {CpuSpec(SimdTarget::kAvx2, 8), CudaSpec(90), CudaSpec(121)}) {
    for (const SplitMode split : {SplitMode::kAuto, SplitMode::kFixed, SplitMode::kOff}) {
      for (const bool room : {false, true}) {
        Batch batch(spec.kind);
        PlanOptions options;
        options.split = split;
        if (split == SplitMode::kFixed) options.fixed_split_rows = 1024;
        PlanScratch scratch;
        Plan plan;
        ASSERT_TRUE(MakePlanWith(batch.request(), spec, options, scratch, plan).ok());
        if (room) {
          options.capacity = Capacity(plan);
          ASSERT_TRUE(MakePlanWith(batch.request(), spec, options, scratch, plan).ok());
        }
        for (int warm = 0; warm < 2; ++warm) {
          ASSERT_TRUE(Replan(batch.request(), scratch, plan).ok());
        }
        const long before = AllocationCount();
        for (std::int64_t& keys : batch.kv_len) keys = keys * 3 / 4;
        const Status status = Replan(batch.request(), scratch, plan);
        EXPECT_EQ(AllocationCount(), before)
            << spec.name << " " << Name(split) << (room ? " with room" : "");
        EXPECT_TRUE(status.ok()) << status.message();
        EXPECT_EQ(plan.kv_len, batch.kv_len);
      }
    }
  }
}

TEST(Replan, P34_SplitsFollowTheLengthsNotTheCapture) {
  // Captured short, replayed long: the blocks are as busy as in a plan made for the long lengths.
  Batch batch(DeviceKind::kCuda, 1);
  batch.kv_len[0] = 129;
  PlanScratch scratch;
  Plan plan;
  PlanOptions options;
  ASSERT_TRUE(MakePlanWith(batch.request(), CudaSpec(90), options, scratch, plan).ok());
  options.capacity = Capacity(plan);
  ASSERT_TRUE(MakePlanWith(batch.request(), CudaSpec(90), options, scratch, plan).ok());
  const std::size_t bytes = plan.data.size();
  batch.kv_len[0] = 2000;
  ASSERT_TRUE(Replan(batch.request(), scratch, plan).ok());
  const Plan fresh = MakePlan(batch.request(), CudaSpec(90)).value();
  EXPECT_EQ(plan.data.size(), bytes);
  EXPECT_GT(plan.split.max_splits, 1);
  EXPECT_LE(plan.launch().estimated_us, 1.2 * fresh.launch().estimated_us);
}

TEST(Replan, BeyondTheCapacityIsRefusedAndChangesNothing) {
  Batch batch(DeviceKind::kCuda);
  PlanScratch scratch;
  Plan plan;
  PlanOptions options;
  ASSERT_TRUE(MakePlanWith(batch.request(), CudaSpec(90), options, scratch, plan).ok());
  options.capacity = Capacity(plan);
  options.capacity->kv_len = 32000;
  ASSERT_TRUE(MakePlanWith(batch.request(), CudaSpec(90), options, scratch, plan).ok());
  const Plan before = plan;

  Batch more(DeviceKind::kCuda, 65);
  Status status = Replan(more.request(), scratch, plan);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.field(), "q_indptr");
  EXPECT_EQ(plan, before);

  PlanOptions wrong = options;
  wrong.capacity->kv_heads = 4;
  status = MakePlan(batch.request(), CudaSpec(90), wrong).status();
  EXPECT_EQ(status.field(), "options.capacity.kv_heads");
}

TEST(Replan, AClassWithoutALaunchIsRefusedByName) {
  RequestOptions decode = Decode({1000, 2000});
  RequestBuilder one(decode);
  one.Place(DeviceKind::kCuda);
  PlanScratch scratch;
  Plan plan;
  ASSERT_TRUE(MakePlanWith(one.request, CudaSpec(90), {}, scratch, plan).ok());
  RequestBuilder many(Decode({1000, 2000}, 300));
  many.Place(DeviceKind::kCuda);
  const Status status = Replan(many.request, scratch, plan);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.field(), "q_indptr");
  EXPECT_NE(status.message().find("300 query rows"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace kvilt::plan
