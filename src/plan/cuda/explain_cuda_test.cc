// GPU plans in words and in JSON, and the tiles weighed again from the plan alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "src/plan/cuda/cost.h"
#include "src/plan/cuda/tile_candidates.h"
#include "src/plan/cuda/weigh.h"
#include "src/plan/device_table.h"
#include "src/plan/planner.h"
#include "src/plan/request_builder.h"

namespace kvilt::plan::cuda {
namespace {

RequestOptions Nvfp4(std::vector<std::int64_t> kv_len, std::int64_t q_len = 1) {
  RequestOptions options = Decode(std::move(kv_len), q_len);
  options.segments[0].k = options.segments[0].v = DType::kNVFP4;
  return options;
}

Plan PlanOf(const RequestOptions& request, int arch, const PlanOptions& options = {}) {
  RequestBuilder builder(request);
  builder.Place(DeviceKind::kCuda);
  return MakePlan(builder.request, CudaSpec(arch), options).value();
}

// One decode and one prefill request: two launches.
Plan Mixed() {
  RequestOptions request = Nvfp4({32768, 8192});
  request.q_len = {1, 512};
  return PlanOf(request, 90);
}

TEST(ExplainCuda, TextSaysWhatAndWhyOfEachLaunch) {
  const Plan plan = Mixed();
  ASSERT_EQ(plan.launches.size(), 2u);
  const std::string text = Describe(plan, {true, false});
  for (const char* part :
       {"sm_90, 132 SMs", "path        cuda/prefill,", "launch 1", "launch 2", "K nvfp4, V nvfp4",
        "of 232448 bytes of a block", "k_scales", "of 132 blocks", "by resource: memory",
        "at the roofline", "that would run", "% slower by the model", "... ",
        "the kernel of cuda/decode is not part of this version"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  for (const Launch& launch : plan.launches) {
    EXPECT_NE(Describe(plan).find(launch.tile.name), std::string::npos);
  }
  EXPECT_EQ(Describe(plan).find("passed over"), std::string::npos);
  for (const SmemPart& part : plan.launch().smem) {
    EXPECT_NE(text.find(part.name), std::string::npos) << part.name;
  }
}

TEST(ExplainCuda, RefusalsNameTheNumbers) {
  RequestOptions request = Nvfp4({131072});
  request.q_heads = 16, request.kv_heads = 2;
  request.head_dim_qk = 512, request.head_dim_vo = 256;
  const std::string text = Describe(PlanOf(request, 121), {true, false});
  EXPECT_NE(text.find("needs wgmma, which sm_121 has not"), std::string::npos) << text;
  EXPECT_NE(text.find("bytes of shared memory in a block, sm_121 allows 101376"), std::string::npos)
      << text;
}

TEST(ExplainCuda, JsonHoldsEveryLaunch) {
  const Plan plan = Mixed();
  const auto json = nlohmann::json::parse(DescribeJson(plan, {true, true}));
  ASSERT_EQ(json["launches"].size(), 2u);
  EXPECT_EQ(json["path"], plan.path());
  EXPECT_EQ(json["tile"], json["launches"][0]["tile"]);
  EXPECT_EQ(json["smem"], json["launches"][0]["smem"]);
  EXPECT_EQ(json["refused"], json["launches"][0]["refused"]);
  for (std::size_t l = 0; l < 2; ++l) {
    const Launch& launch = plan.launches[l];
    const auto& found = json["launches"][l];
    EXPECT_EQ(found["tile"]["name"], launch.tile.name);
    EXPECT_EQ(found["smem"]["total_bytes"], launch.smem_bytes());
    EXPECT_EQ(found["blocks"], launch.blocks);
    EXPECT_EQ(found["kv_bytes"], launch.kv_bytes);
    EXPECT_EQ(found["k_dtype"], "nvfp4");
    EXPECT_EQ(found["refused"].size(), WeighAgain(plan, l).size());
    EXPECT_DOUBLE_EQ(found["roofline_share"].get<double>(),
                     launch.roofline_us / launch.estimated_us);
  }
  EXPECT_EQ(json["items"].back()["launch"], 1);
}

// What the planner did: of the tiles that it considered, none is faster; each is listed once.
void CheckWeighing(const Plan& plan) {
  for (std::size_t l = 0; l < plan.launches.size(); ++l) {
    const std::vector<PassedOver> list = WeighAgain(plan, l);
    ASSERT_FALSE(list.empty());
    double last = 0;
    for (const PassedOver& tile : list) {
      EXPECT_FALSE(tile.text.empty());
      if (tile.reason != TileReason::kFeasible) {
        EXPECT_EQ(tile.us, 0);
        continue;
      }
      EXPECT_GE(tile.us, last);
      last = tile.us;
      EXPECT_EQ(tile.text.find("% faster"), std::string::npos) << tile.name << ": " << tile.text;
      EXPECT_EQ(tile.text.find("inf"), std::string::npos) << tile.name << ": " << tile.text;
    }
    const TileEstimate e = EstimateItems(plan, l);
    const double busiest = std::max({e.memory_us, e.issue_us, e.mma_us, e.copy_us});
    EXPECT_LE(busiest, plan.launches[l].estimated_us) << plan.launches[l].tile.name;
    EXPECT_GT(busiest, 0) << plan.launches[l].tile.name;
    EXPECT_LE(plan.launches[l].roofline_us, plan.launches[l].estimated_us);
  }
}

TEST(ExplainCuda, WeighingAgainAgreesWithTheChoice) {
  PlanOptions fixed;
  fixed.split = SplitMode::kFixed;
  fixed.fixed_split_rows = 1024;
  for (const int arch : CudaArchs()) {
    for (const std::int64_t q_len : {1, 4, 8, 512}) {
      for (const PlanOptions& options : {PlanOptions{}, fixed}) {
        SCOPED_TRACE(testing::Message() << "sm_" << arch << " q_len " << q_len);
        CheckWeighing(PlanOf(Nvfp4({8192, 1024}, q_len), arch, options));
      }
    }
  }
}

TEST(ExplainCuda, AskedTilesAndPathsAreTheReason) {
  const RequestOptions request = Nvfp4({131072}, 4);
  PlanOptions options;
  const Plan free = PlanOf(request, 90, options);
  std::string other;
  for (const PassedOver& tile : WeighAgain(free, 0)) {
    if (tile.reason == TileReason::kFeasible && other.empty()) other = tile.name;
  }
  options.tile = other;
  const Plan asked = PlanOf(request, 90, options);
  EXPECT_EQ(asked.launch().tile.name, other);
  const auto list = WeighAgain(asked, 0);
  const auto found = std::find_if(list.begin(), list.end(), [&](const PassedOver& tile) {
    return tile.name == free.launch().tile.name;
  });
  ASSERT_NE(found, list.end());
  EXPECT_NE(found->text.find("options.tile asks for another"), std::string::npos) << found->text;
  options = {};
  options.path = "cuda/prefill";
  for (const PassedOver& tile : WeighAgain(PlanOf(request, 90, options), 0)) {
    if (tile.name.starts_with("prefill ")) continue;
    EXPECT_EQ(tile.reason, TileReason::kNotAsked) << tile.name;
  }
}

TEST(ExplainCuda, UpdatesKeepWhatTilesWereWeighedFor) {
  RequestBuilder builder(Nvfp4({65536, 1024}));
  builder.Place(DeviceKind::kCuda);
  PlanScratch scratch;
  Plan plan;
  ASSERT_TRUE(MakePlanWith(builder.request, CudaSpec(90), {}, scratch, plan).ok());
  const Plan before = plan;
  std::get<PagedKv>(builder.request.segments[0].kv).table.kv_len = builder.Array({100, 1000});
  ASSERT_TRUE(Replan(builder.request, scratch, plan).ok());
  EXPECT_EQ(plan.launch().work, before.launch().work);
  EXPECT_LT(plan.launch().kv_bytes, before.launch().kv_bytes);
  ASSERT_EQ(WeighAgain(plan, 0).size(), WeighAgain(before, 0).size());
  EXPECT_EQ(WeighAgain(plan, 0).front().text, WeighAgain(before, 0).front().text);
}

// A plan object that is planned into again says nothing of what it was.
TEST(ExplainCuda, PlanningIntoAPlanDescribesTheNewOne) {
  PlanScratch scratch;
  Plan plan;
  RequestBuilder bf16(Decode({4096}));
  bf16.Place(DeviceKind::kCuda);
  ASSERT_TRUE(MakePlanWith(bf16.request, CudaSpec(90), {}, scratch, plan).ok());
  RequestBuilder nvfp4(Nvfp4({4096}));
  nvfp4.Place(DeviceKind::kCuda);
  ASSERT_TRUE(MakePlanWith(nvfp4.request, CudaSpec(90), {}, scratch, plan).ok());
  EXPECT_EQ(plan, MakePlan(nvfp4.request, CudaSpec(90)).value());
}

}  // namespace
}  // namespace kvilt::plan::cuda
