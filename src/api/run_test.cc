#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "kvilt/kvilt.h"
#include "src/api/allocation_count.h"
#include "src/api/prepared_impl.h"
#include "src/api/run_fixture.h"
#include "src/plan/plan_data.h"
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

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

#if defined(__SSE2__)
// A host that flushes subnormals gets the same bits: no part of a scale is lost on the way.
TEST(Run, CallersFlushModeNeitherMattersNorChanges) {
  RunProblem problem;
  problem.request.sm_scale = 0x1p-130f;
  problem.request.q_scale = 0x1p66f;
  problem.paged().k.global.value = 0x1p62f;
  problem.paged().k.global.allow_unusual = true;
  const unsigned former = _mm_getcsr();
  const unsigned hostile = former | 0x8040;  // FTZ, DAZ.
  std::vector<std::vector<float>> outs;
  for (const unsigned planning : {former, hostile}) {
    for (const unsigned running : {former, hostile}) {
      _mm_setcsr(planning);
      const Ready ready(OpenCpu(2), problem.request, F32Options());
      _mm_setcsr(running);
      const Status status = ready.Run(problem.request);
      const unsigned after = _mm_getcsr();
      _mm_setcsr(former);
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(after & ~0x3Fu, running & ~0x3Fu);
      outs.push_back(problem.out);
    }
  }
  for (const auto& out : outs) EXPECT_EQ(out, outs[0]);
  RunProblem plain;
  plain.request.sm_scale = 0.25f;
  const Ready ready(OpenCpu(2), plain.request, F32Options());
  ASSERT_TRUE(ready.Run(plain.request).ok());
  EXPECT_EQ(plain.out, outs[0]);
}
#endif

// A product of scales that f32 cannot hold on the way, though the whole is ordinary.
TEST(Run, ScalesWhoseProductLeavesF32OnTheWay) {
  RunProblem plain;
  plain.request.sm_scale = 0.25f;
  const Ready reference(OpenCpu(1), plain.request, F32Options());
  ASSERT_TRUE(reference.Run(plain.request).ok());
  RunProblem problem;
  for (float& value : problem.q) value *= 0x1p50f;
  problem.request.sm_scale = 0x1p-52f;
  problem.request.q_scale = 0x1p-100f;
  problem.paged().k.global.value = 0x1p100f;
  problem.paged().k.global.allow_unusual = true;
  const Ready ready(OpenCpu(1), problem.request, F32Options());
  ASSERT_TRUE(ready.Run(problem.request).ok());
  EXPECT_EQ(problem.out, plain.out);
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

// Whatever became of plan data, it is refused, or it is what it was.
TEST(Prepare, RefusesPlanDataThatWasCutOrGarbled) {
  RunProblem problem;
  const Device device = OpenCpu(1);
  PlanOptions options = F32Options();
  options.split = SplitMode::kFixed;
  options.fixed_split_rows = 16;
  const Plan plan = MakePlan(problem.request, device.spec(), options).value();
  ASSERT_TRUE(Prepare(device, plan).ok());
  for (std::size_t bytes = 0; bytes < plan.data.size(); bytes += 8) {
    Plan cut = plan;
    cut.data.resize(bytes);
    const Status status = Prepare(device, cut).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << bytes;
    EXPECT_EQ(status.field(), "plan.data") << bytes;
  }
  // Every word of the header, each to values that no list of this plan has room for.
  for (std::size_t word = 2; word < sizeof(contract::PlanHeader) / 4; ++word) {
    for (const std::uint32_t value : {0x7FFFFFFFu, 0xFFFFFFFFu, 0x80000000u}) {
      Plan garbled = plan;
      std::memcpy(garbled.data.data() + 4 * word, &value, 4);
      const Result<PreparedPlan> prepared = Prepare(device, garbled);
      if (prepared.ok()) continue;  // Words that nothing here reads.
      EXPECT_EQ(prepared.status().field(), "plan.data") << word << " " << value;
    }
  }
  Plan longer = plan;
  longer.data.resize(plan.data.size() + 16);
  EXPECT_EQ(Prepare(device, longer).status().field(), "plan.data");
}

// Every index that one list holds into another.
TEST(Prepare, RefusesListsThatPointOutsideEachOther) {
  RunProblem problem;
  const Device device = OpenCpu(1);
  PlanOptions options = F32Options();
  options.split = SplitMode::kFixed;
  options.fixed_split_rows = 16;
  const Plan plan = MakePlan(problem.request, device.spec(), options).value();
  const plan::PlanDataView view = plan::ViewPlanData(plan.data);
  ASSERT_FALSE(view.merges.empty());
  const auto refused = [&](const auto& entry, const auto& changed) {
    Plan garbled = plan;
    const auto offset = reinterpret_cast<const std::byte*>(&entry) - plan.data.data();
    std::memcpy(garbled.data.data() + offset, &changed, sizeof(changed));
    const Status status = Prepare(device, garbled).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.field(), "plan.data") << status.message();
  };
  const auto change = [&](const auto& list, auto edit) {
    auto changed = list.back();
    edit(changed);
    refused(list.back(), changed);
  };
  change(view.blocks, [](auto& b) { b.request = 3; });
  change(view.blocks, [](auto& b) { b.q_head_count = 5; });
  change(view.blocks, [](auto& b) { b.row_count = 99; });
  change(view.blocks, [](auto& b) { b.splits = -1; });
  change(view.blocks, [](auto& b) { b.partial_begin = 1 << 20; });
  change(view.spans, [](auto& s) { s.block = 100; });
  change(view.spans, [](auto& s) { s.split = 100; });
  change(view.items, [](auto& i) { i.span_begin = -1; });
  change(view.items, [](auto& i) { i.span_count = 1000; });
  change(view.items, [](auto& i) { i.head_begin = 2; });
  change(view.items, [](auto& i) { i.key_end = 1 << 20; });
  change(view.merges, [](auto& m) { m.block = -1; });
  change(view.merges, [](auto& m) { m.count = 1 << 20; });
  change(view.requests, [](auto& r) { r.q_len = -1; });
  change(view.segment_begins, [](auto& begin) { begin = -1; });
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
// An update writes every byte of plan data that a run reads.
TEST(UpdatePlan, P32_no_entry_of_the_former_plan_is_left) {
  for (const SplitMode split : {SplitMode::kAuto, SplitMode::kFixed, SplitMode::kOff}) {
    RunProblem problem;
    const Device device = OpenCpu(2);
    PlanOptions options = F32Options();
    options.split = split;
    if (split == SplitMode::kFixed) options.fixed_split_rows = 16;
    const Ready ready(device, problem.request, options);
    std::vector<std::byte>& data = ready.prepared.impl()->plan.data;
    const std::vector<std::byte> whole = data;
    const auto lists = data.begin() + sizeof(contract::PlanHeader);
    std::fill(lists, data.end(), std::byte{0xFF});
    ASSERT_TRUE(UpdatePlan(ready.prepared, problem.request).ok());
    const std::vector<std::byte>& updated = ready.prepared.impl()->plan.data;
    EXPECT_EQ(updated.size(), whole.size());
    EXPECT_TRUE(std::equal(updated.begin() + sizeof(contract::PlanHeader), updated.end(),
                           whole.begin() + sizeof(contract::PlanHeader)));
    const auto space = ready.space();
    std::fill(space.begin(), space.end(), std::byte{0xFF});
    ASSERT_TRUE(ready.Run(problem.request).ok());
    EXPECT_LE(problem.MaxError(), 1e-5);
  }
}

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
