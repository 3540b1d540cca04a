// What calls cost in host memory, and that its lack is a Status and no exception.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "kvilt/kvilt.h"
#include "src/api/allocation_count.h"
#include "src/api/cache_fixture.h"
#include "src/api/run_fixture.h"

namespace kvilt {
namespace {

using api::test::AllocatedBytes;
using api::test::AllocationFailed;
using api::test::CacheMemory;
using api::test::F32Options;
using api::test::FailAllocation;
using api::test::RowMemory;
using api::test::RunProblem;

Device OpenCpu() { return Device::Open("cpu", {.threads = 2}).value(); }

// Lets each allocation of `call` fail in turn, until it needs no more of them.
void ExpectStatusWithoutMemory(const std::function<Status()>& call) {
  for (long later = 0;; ++later) {
    FailAllocation(later);
    Status status;
    EXPECT_NO_THROW(status = call()) << "allocation " << later;
    if (!AllocationFailed()) {
      EXPECT_TRUE(status.ok()) << status.message();
      return;
    }
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << later << ": " << status.message();
    ASSERT_LT(later, 1000);
  }
}

TEST(NoMemory, Run) {
  RunProblem problem;
  problem.request.rope.emplace();
  PlanOptions options = F32Options();
  options.split = SplitMode::kFixed;
  options.fixed_split_rows = 16;
  const Device device = OpenCpu();
  const Plan plan = MakePlan(problem.request, device.spec(), options).value();
  const Buffer workspace = Buffer::Allocate(device, plan.workspace_bytes).value();
  const std::span<std::byte> space(workspace.data(),
                                   static_cast<std::size_t>(workspace.size_bytes()));
  // A thread of its own, whose scratch is not there yet.
  std::thread([&] {
    const PreparedPlan prepared = Prepare(device, plan).value();
    ExpectStatusWithoutMemory([&] { return kvilt::Run(prepared, problem.request, space); });
  }).join();
}

TEST(NoMemory, AppendAndDequantize) {
  const Device device = OpenCpu();
  CacheMemory cache{{}};
  cache.SetTable({0, 2, 3}, {0, 2, 1}, {5, 2});
  const RowMemory k{4, 2, 64, 1};
  const RowMemory v{4, 2, 64, 2};
  const std::vector<std::int64_t> token_indptr = {0, 3, 4};
  AppendRequest request = {k.view, v.view, cache.segment, token_indptr, {}, false};
  ExpectStatusWithoutMemory([&] { return AppendKv(device, request); });
  std::vector<float> rows(7 * 2 * 64);
  const TensorView out = TensorView::Dense(rows.data(), DType::kF32, {7, 2, 64});
  ExpectStatusWithoutMemory([&] { return DequantizeKv(device, cache.segment, out, {}); });
}

TEST(NoMemory, MergeAndCopy) {
  const Device device = OpenCpu();
  std::vector<float> out(8), lse(1), merged(8), merged_lse(1);
  AttentionState state;
  state.out = TensorView::Dense(out.data(), DType::kF32, {1, 1, 8});
  state.lse = TensorView::Dense(lse.data(), DType::kF32, {1, 1});
  AttentionState result;
  result.out = TensorView::Dense(merged.data(), DType::kF32, {1, 1, 8});
  result.lse = TensorView::Dense(merged_lse.data(), DType::kF32, {1, 1});
  const std::vector<AttentionState> states(3, state);
  ExpectStatusWithoutMemory([&] { return MergeStates(device, states, result); });

  CacheMemory cache{{}};
  const std::vector<PageCopy> copies = {{0, 1, 2}};
  ExpectStatusWithoutMemory([&] { return CopyPages(device, cache.segment, copies); });
}

TEST(NoMemory, PagePool) {
  const std::vector<std::int64_t> tokens = {5, 9};
  for (long later = 0;; ++later) {
    PagePool pool = PagePool::Create(8, 4).value();
    const std::vector<SequenceId> ids = {pool.Create().value(), pool.Create().value()};
    std::vector<PageCopy> copies;
    FailAllocation(later);
    Status status;
    EXPECT_NO_THROW(status = pool.Append(ids, tokens, &copies));
    if (!AllocationFailed()) {
      EXPECT_TRUE(status.ok());
      break;
    }
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(pool.free_pages(), 8);
    EXPECT_EQ(pool.length(ids[0]).value(), 0);
    EXPECT_TRUE(pool.page_ids(ids[1]).value().empty());
  }
}

// A sequence that grows token by token costs the same for each, however long it is.
TEST(PagePool, AppendingTokenByTokenCopiesItsListsRarely) {
  constexpr std::int64_t kTokens = 20000;
  PagePool pool = PagePool::Create(kTokens, 1).value();
  const std::vector<SequenceId> ids = {pool.Create().value()};
  const std::vector<std::int64_t> one = {1};
  std::vector<PageCopy> copies;
  const long before = AllocatedBytes();
  for (std::int64_t i = 0; i < kTokens; ++i) ASSERT_TRUE(pool.Append(ids, one, &copies).ok());
  EXPECT_LT(AllocatedBytes() - before, 256 * kTokens);
  EXPECT_EQ(pool.Append(ids, one, &copies).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(pool.length(ids[0]).value(), kTokens);
}

}  // namespace
}  // namespace kvilt
