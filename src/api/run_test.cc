#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>

#include "kvilt/kvilt.h"
#include "src/api/allocation_count.h"
#include "src/api/run_fixture.h"

namespace kvilt {
namespace {

using api::test::AllocationCount;
using api::test::F32Options;
using api::test::RunProblem;

Device OpenCpu(int threads) {
  DeviceOptions options;
  options.threads = threads;
  return Device::Open("cpu", options).value();
}

struct Ready {
  Ready(const Device& device, const AttentionRequest& request, const PlanOptions& options)
      : prepared(Prepare(device, MakePlan(request, device.spec(), options).value()).value()),
        workspace(Buffer::Allocate(device, prepared.plan().workspace_bytes).value()) {}

  std::span<std::byte> space() const {
    return {workspace.data(), static_cast<std::size_t>(workspace.size_bytes())};
  }
  Status Run(const AttentionRequest& request) const {
    return kvilt::Run(prepared, request, space());
  }

  PreparedPlan prepared;
  Buffer workspace;
};

TEST(Run, MatchesThePlainLoop) {
  for (const int threads : {1, 2}) {
    for (const SplitMode split : {SplitMode::kAuto, SplitMode::kFixed, SplitMode::kOff}) {
      RunProblem problem;
      PlanOptions options = F32Options();
      options.split = split;
      if (split == SplitMode::kFixed) options.fixed_split_rows = 16;
      const Ready ready(OpenCpu(threads), problem.request, options);
      if (split == SplitMode::kFixed) {
        EXPECT_EQ(ready.prepared.plan().split.max_splits, 4);
      }
      ASSERT_TRUE(ready.Run(problem.request).ok());
      EXPECT_LE(problem.MaxError(), 1e-5) << threads << " threads, split " << Name(split);
      EXPECT_TRUE(LastError(ready.prepared).ok());
    }
  }
}

TEST(Run, RunsOnEveryTargetOfThisMachine) {
  for (const char* name :
       {"cpu:scalar", "cpu:sse4", "cpu:neon", "cpu:avx2", "cpu:avx512", "cpu:avx512_bf16"}) {
    DeviceOptions one;
    one.threads = 1;
    const auto device = Device::Open(name, one);
    if (!device.ok()) continue;
    RunProblem problem;
    const Ready ready(*device, problem.request, F32Options());
    ASSERT_TRUE(ready.Run(problem.request).ok()) << name;
    EXPECT_LE(problem.MaxError(), 1e-5) << name;
  }
}

TEST(Run, AllocatesNothingOnceWarm) {
  RunProblem problem;
  problem.request.rope.emplace();
  problem.request.window_left = 40;
  const std::vector<float> globals = {0.5f, 0x1p-30f};
  problem.paged().v.global.array = globals.data();
  problem.paged().v.global.array_size = 2;
  problem.paged().v.global.allow_unusual = true;
  PlanOptions options = F32Options();
  options.split = SplitMode::kFixed;
  options.fixed_split_rows = 16;
  const Ready ready(OpenCpu(2), problem.request, options);
  for (int warm = 0; warm < 3; ++warm) ASSERT_TRUE(ready.Run(problem.request).ok());
  const long before = AllocationCount();
  for (int run = 0; run < 5; ++run) {
    if (!ready.Run(problem.request).ok()) std::abort();
  }
  EXPECT_EQ(AllocationCount(), before);
  // The counter does count.
  const std::string text(1000, 'x');
  EXPECT_GT(AllocationCount(), before);
}

// One prepared plan, several threads, each with its own outputs and workspace.
TEST(Run, SharesAPlanBetweenThreads) {
  RunProblem first;
  const Ready ready(OpenCpu(2), first.request, F32Options());
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      RunProblem mine;
      const Buffer workspace =
          Buffer::Allocate(ready.prepared.device(), ready.prepared.plan().workspace_bytes).value();
      for (int run = 0; run < 20; ++run) {
        const Status status =
            kvilt::Run(ready.prepared, mine.request,
                       {workspace.data(), static_cast<std::size_t>(workspace.size_bytes())});
        if (!status.ok() || !(mine.MaxError() <= 1e-5)) ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures.load(), 0);
}

TEST(Prepare, RefusesForeignPlans) {
  RunProblem problem;
  const Device device = OpenCpu(1);
  Plan plan = MakePlan(problem.request, device.spec(), F32Options()).value();
  EXPECT_EQ(Prepare(device, Plan()).status().field(), "plan.data");
  Plan other = plan;
  other.spec.simd =
      device.spec().simd == SimdTarget::kScalar ? SimdTarget::kAvx2 : SimdTarget::kScalar;
  const Status status = Prepare(device, other).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.field(), "plan.spec.simd");
  other = plan;
  other.spec.kind = DeviceKind::kCuda;
  EXPECT_EQ(Prepare(device, other).status().code(), StatusCode::kFailedPrecondition);
  other = plan;
  other.data[0] ^= std::byte{1};
  EXPECT_EQ(Prepare(device, other).status().field(), "plan.data");
}

TEST(UpdatePlan, FollowsNewLengths) {
  RunProblem problem;
  const Device device = OpenCpu(2);
  Ready ready(device, problem.request, F32Options());
  ASSERT_TRUE(ready.Run(problem.request).ok());
  problem.SetLengths({1, 64, 9});
  // P33: a stale plan is found, not run.
  const Status stale = ready.Run(problem.request);
  EXPECT_EQ(stale.code(), StatusCode::kFailedPrecondition);
  ASSERT_TRUE(UpdatePlan(ready.prepared, problem.request).ok());
  EXPECT_EQ(ready.prepared.plan().kv_len, (std::vector<std::int64_t>{1, 64, 9}));
  EXPECT_EQ(ready.prepared.plan().options.accuracy, Accuracy::kF32);
  ready.workspace = Buffer::Allocate(device, ready.prepared.plan().workspace_bytes).value();
  ASSERT_TRUE(ready.Run(problem.request).ok());
  EXPECT_LE(problem.MaxError(), 1e-5);
}

// Positions move on with the lengths; a window makes the plan depend on them.
TEST(UpdatePlan, FollowsPositions) {
  RunProblem problem;
  std::vector<std::int64_t> positions = {36, 2, 3, 4, 62, 63};
  problem.request.q_positions = std::span<const std::int64_t>(positions);
  problem.request.window_left = 1000;  // Sees everything, so the causal reference holds.
  const Ready ready(OpenCpu(1), problem.request, F32Options());
  ASSERT_TRUE(ready.Run(problem.request).ok());
  positions[0] = 37;
  const Status stale = ready.Run(problem.request);
  EXPECT_EQ(stale.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(stale.field(), "q_positions");
  ASSERT_TRUE(UpdatePlan(ready.prepared, problem.request).ok());
  ASSERT_TRUE(ready.Run(problem.request).ok());
  EXPECT_LE(problem.MaxError(), 1e-5);
}

TEST(UpdatePlan, ChangesLengthsOnly) {
  RunProblem problem;
  const Ready ready(OpenCpu(1), problem.request, F32Options());
  const Plan before = ready.prepared.plan();
  const auto refused = [&](std::string_view field) {
    const Status status = UpdatePlan(ready.prepared, problem.request);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.message();
    EXPECT_EQ(status.field(), field) << status.message();
    EXPECT_EQ(ready.prepared.plan(), before);
  };
  problem.request.window_left = 3;
  refused("request");
  problem.request.window_left = -1;
  const TensorView lse = std::exchange(problem.request.lse, TensorView());
  refused("lse");
  problem.request.lse = lse;
  std::vector<std::uint16_t> half(problem.q.size());
  problem.request.q.dtype = DType::kBF16;
  problem.request.q.data = half.data();
  refused("q.dtype");
  problem.request.mask = MaskMode::kUnset;  // Not a request at all: planning says so.
  EXPECT_EQ(UpdatePlan(ready.prepared, problem.request).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kvilt
