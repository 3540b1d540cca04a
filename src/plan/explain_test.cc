// The plan in words and in JSON.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kvilt/attention.h"
#include "src/plan/paths.h"
#include "src/plan/request_builder.h"

namespace kvilt::plan {
namespace {

Plan Sample() {
  RequestBuilder builder(Decode({131072, 1024}));
  return MakePlan(builder.request, CpuSpec(SimdTarget::kAvx512Bf16, 2)).value();
}

TEST(Explain, TextSaysWhatAndWhy) {
  const Plan plan = Sample();
  const std::string text = Describe(plan, {true, true});
  for (const char* part : {"cpu:avx512_bf16, 2 slots", "cpu/avx512_bf16", "2 requests",
                           "kv_len 1024..131072", "splits per row", "balance", "passed over",
                           "cpu/f32", "working set", "segments[0].k.data", "partial row"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  EXPECT_EQ(Describe(plan).find("passed over"), std::string::npos);
}

TEST(Explain, JsonHoldsThePlan) {
  const Plan plan = Sample();
  const auto json = nlohmann::json::parse(DescribeJson(plan, {true, true}));
  EXPECT_EQ(json["device"], "cpu:avx512_bf16");
  EXPECT_EQ(json["path"], plan.path());
  EXPECT_EQ(json["tile"]["kv_rows"], 64);
  EXPECT_EQ(json["smem"]["limit_bytes"], plan.launch().smem_limit_bytes);
  std::int64_t total = 0;
  for (const auto& part : json["smem"]["parts"]) total += part["bytes"].get<std::int64_t>();
  EXPECT_EQ(json["smem"]["total_bytes"], total);
  EXPECT_EQ(json["split"]["mode"], "auto");
  EXPECT_EQ(json["split"]["items"], plan.split.items);
  EXPECT_EQ(json["split"]["max_splits"], plan.split.max_splits);
  EXPECT_EQ(json["workspace_bytes"], plan.workspace_bytes);
  EXPECT_EQ(json["refused"][0]["tile"], "cpu/f32");
  EXPECT_EQ(json["items"].size(), WorkItems(plan).size());
  EXPECT_EQ(json["operands"].size(), plan.signature.size());
}

}  // namespace
}  // namespace kvilt::plan
