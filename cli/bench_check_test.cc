#include "cli/bench_check.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

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
  EXPECT_EQ(least.q_heads, 4);  // The first and the last KV head.
}

// Whatever the sample: one element of a head that it leaves out.
TEST(CheckSample, FindsWhatIsNotFiniteAnywhere) {
  for (const char* text : {"decode b=3 kv=64 heads=10/5 d=64 out=f32",
                           "decode b=3 kv=64 heads=10/5 d=64 out=bf16 extra_rows=1",
                           "decode b=3 kv=64 heads=10/5 d=64 out=f16 out_pad=3/5"}) {
    const Ran ran = RunProblem(text);
    const TensorView& out = ran.data.request().out;
    const int bytes = StorageBytes(out.dtype);
    auto* element =
        static_cast<std::byte*>(out.data) + (1 * out.stride[0] + 4 * out.stride[1] + 7) * bytes;
    ASSERT_TRUE(CheckSample(ran.data.request(), ran.plan, 1).passed()) << text;
    std::memset(element, 0xFF, static_cast<std::size_t>(bytes));  // NaN
    const SampleCheck check = CheckSample(ran.data.request(), ran.plan, 1);
    EXPECT_EQ(check.out_not_finite, 1) << text;
    EXPECT_EQ(check.lse_not_finite, 0) << text;
    EXPECT_EQ(check.Problem(), "1 elements of out are not finite") << text;
    const TensorView& lse = ran.data.request().lse;
    auto* value = static_cast<float*>(lse.data) + 1 * lse.stride[0] + 4 * lse.stride[1];
    *value = std::numeric_limits<float>::infinity();
    EXPECT_EQ(CheckSample(ran.data.request(), ran.plan, 1).lse_not_finite, 1) << text;
  }
}

TEST(CheckSample, EmptyRowsAreGood) {
  const Ran ran = RunProblem("decode kv=0,64 heads=4/2 d=64 out=f32");
  const SampleCheck check = CheckSample(ran.data.request(), ran.plan, kAll);
  EXPECT_TRUE(check.passed()) << check.Problem();
}

TEST(CheckSample, HeadsAreSampledFromAll) {
  const Ran ran = RunProblem("decode kv=64 heads=5/5 d=64 out=f32");
  const double one_head = 64 * 128;
  const TensorView& out = ran.data.request().out;
  for (const std::int64_t head : {0, 2, 4}) {
    float& element = static_cast<float*>(out.data)[head * out.stride[1]];
    const float right = element;
    element += 1;
    EXPECT_FALSE(CheckSample(ran.data.request(), ran.plan, 3 * one_head).passed()) << head;
    element = right;
  }
  EXPECT_EQ(CheckSample(ran.data.request(), ran.plan, 3 * one_head).q_heads, 3);
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
