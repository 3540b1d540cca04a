#include "cli/bench_check.h"

#include <gtest/gtest.h>

#include <cstring>

#include "cli/bench_ceiling.h"
#include "kvilt/attention.h"
#include "src/core/problem.h"
#include "src/core/problem_data.h"

namespace kvilt::cli {
namespace {

struct Ran {
  core::ProblemData data;
  Plan plan;
};

Ran RunProblem(const char* text) {
  const Device device = Device::Open("cpu", {1}).value();
  core::ProblemData data = core::BuildProblem(core::ParseProblem(text).value()).value();
  Plan plan = MakePlan(data.request(), device.spec(), data.plan_options()).value();
  const PreparedPlan prepared = Prepare(device, plan).value();
  const Status status = Run(prepared, data.request(), data.Workspace(plan.workspace_bytes));
  EXPECT_TRUE(status.ok()) << status.message();
  return {std::move(data), std::move(plan)};
}

constexpr double kAll = 1e12;

TEST(CheckSample, PassesAndCountsWhatItSaw) {
  const Ran ran = RunProblem("prefill q=16 kv=64 heads=6/3 d=64 kv_dtype=nvfp4");
  const SampleCheck whole = CheckSample(ran.data.request(), ran.plan, kAll);
  EXPECT_TRUE(whole.passed()) << whole.rel_l2;
  EXPECT_EQ(whole.rows, 16);
  EXPECT_EQ(whole.q_heads, 6);
  const SampleCheck least = CheckSample(ran.data.request(), ran.plan, 1);
  EXPECT_TRUE(least.passed());
  EXPECT_EQ(least.rows, 2);
  EXPECT_EQ(least.q_heads, 2);  // One KV head.
}

TEST(CheckSample, SeesDamageInTheHeadsItKeeps) {
  for (const char* text :
       {"decode kv=64 heads=6/3 d=64 kv_dtype=nvfp4 out=f32 alibi=bottom_right sink=1",
        "decode kv=64 heads=6/3 d=64 kv_dtype=e4m3 layout=nhd out=f32",
        "decode kv=64 heads=6/3 d=64 kv_dtype=nvfp4 global=1,0.5,0.0625 out=f32",
        "decode kv=64 heads=6/3 d=64 cache=ragged out=f32"}) {
    const auto parsed = core::ParseProblem(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    Ran ran = RunProblem(text);
    ASSERT_TRUE(CheckSample(ran.data.request(), ran.plan, 1).passed()) << text;
    const TensorView& out = ran.data.request().out;
    auto* last_head = static_cast<float*>(out.data) + 5 * out.stride[1];
    last_head[3] = last_head[3] + 1;
    EXPECT_FALSE(CheckSample(ran.data.request(), ran.plan, 1).passed()) << text;
  }
}

TEST(ReadCeiling, IsAPlausibleRate) {
  const double rate = ReadCeilingGbPerS(1 << 20, 1, 0);
  EXPECT_GT(rate, 0.1);
  EXPECT_LT(rate, 2000);
}

}  // namespace
}  // namespace kvilt::cli
