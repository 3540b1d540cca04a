// What the planner decides, over tables of cases.
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "kvilt/attention.h"
#include "src/plan/paths.h"
#include "src/plan/plan_data.h"
#include "src/plan/request_builder.h"

namespace kvilt::plan {
namespace {

constexpr std::int64_t kL2Bytes = 2 << 20;

DeviceSpec Spec(int slots, SimdTarget target = SimdTarget::kAvx512Bf16) {
  return CpuSpec(target, slots, kL2Bytes);
}

Plan PlanOf(const RequestOptions& request, int slots = 2, const PlanOptions& options = {}) {
  RequestBuilder builder(request);
  return MakePlan(builder.request, Spec(slots), options).value();
}

PlanOptions Fixed(std::int64_t rows) {
  PlanOptions options;
  options.split = SplitMode::kFixed;
  options.fixed_split_rows = rows;
  return options;
}

PlanOptions Off() {
  PlanOptions options;
  options.split = SplitMode::kOff;
  return options;
}

// Two segments: `prefix` keys shared by all requests, then `own` keys each.
RequestOptions Shared(std::int64_t batch, std::int64_t prefix, std::int64_t own) {
  RequestOptions request = Decode(std::vector<std::int64_t>(static_cast<std::size_t>(batch), own));
  SegmentOptions shared;
  shared.kv_len = {prefix};
  for (std::int64_t r = 0; r < batch; ++r) shared.owners.push_back(static_cast<std::int32_t>(r));
  request.segments.insert(request.segments.begin(), shared);
  return request;
}

TEST(Planner, DecodeIsSplitAcrossSlots) {
  const Plan plan = PlanOf(Decode({131072}));
  EXPECT_EQ(plan.path(), "cpu/avx512_bf16");
  EXPECT_EQ(plan.split.items, 8);
  EXPECT_EQ(plan.split.max_splits, 8);
  EXPECT_EQ(plan.split.merged_rows, 1);
  EXPECT_LE(plan.split.balance, 1.01);
  EXPECT_EQ(plan.kv_bytes, 131072LL * 8 * 128 * 2 * 2);
  EXPECT_DOUBLE_EQ(plan.flops, 2.0 * 131072 * 32 * 256);
  EXPECT_EQ(plan.launch().tile.kv_heads, 8);  // Page-major: all heads together.
}

TEST(Planner, OneSlotIsNotSplitNeedlessly) {
  const Plan plan = PlanOf(Decode({131072, 1, 7000}), 1);
  EXPECT_EQ(plan.split.items, 3);
  EXPECT_EQ(plan.split.max_splits, 1);
  EXPECT_EQ(plan.workspace_bytes, 0);
}

TEST(Planner, ShortKeysAreCutByHeadsInsteadOfSplit) {
  const Plan plan = PlanOf(Decode({1000}), 2);
  EXPECT_EQ(plan.split.max_splits, 1);
  EXPECT_GE(plan.split.items, 2);
  EXPECT_EQ(plan.workspace_bytes, 0);
}

// Every batch keeps the slots near-equally busy: makespan * slots / total cost.
TEST(Planner, BalanceOverATableOfBatches) {
  const auto repeat = [](std::int64_t n, std::int64_t length) {
    return std::vector<std::int64_t>(static_cast<std::size_t>(n), length);
  };
  std::vector<std::int64_t> skewed = repeat(64, 1024);
  skewed[63] = 131072;
  std::vector<std::int64_t> log_spaced;
  for (std::int64_t i = 0; i < 32; ++i) log_spaced.push_back(512 << (i * 7 / 31));
  const std::vector<std::int64_t> batches[] = {
      {131072},         {8192, 8192, 8192}, skewed,           log_spaced,
      repeat(64, 1024), repeat(5, 4096),    {40000, 1, 1, 1}, repeat(33, 2000)};
  for (const std::vector<std::int64_t>& kv_len : batches) {
    for (int slots : {1, 2, 3, 8, 16}) {
      for (std::int64_t q_len : {1, 4, 64}) {
        const Plan plan = PlanOf(Decode(kv_len, q_len), slots);
        EXPECT_LE(plan.split.balance, 1.3) << kv_len.size() << " requests, first " << kv_len[0]
                                           << ", q_len " << q_len << ", " << slots << " slots";
      }
    }
  }
}

TEST(Planner, CausalPrefillReadsOnlyWhatItsRowsSee) {
  const Plan plan = PlanOf(Decode({8192}, 8192));
  for (const WorkItemInfo& item : WorkItems(plan)) EXPECT_EQ(item.key_end, item.row_end);
  EXPECT_DOUBLE_EQ(plan.flops, 2.0 * (8192.0 * 8193 / 2) * 32 * 256);
  EXPECT_LE(plan.split.balance, 1.05);
}

TEST(Planner, P38_WindowBoundsTheBytesRead) {
  RequestOptions request = Decode({131072});
  RequestBuilder windowed(request);
  windowed.request.window_left = 1023;
  const Plan plan = MakePlan(windowed.request, Spec(2)).value();
  EXPECT_EQ(plan.kv_bytes, PlanOf(Decode({1024})).kv_bytes);
}

TEST(Planner, P36_NoKeysNoRowsNoRequests) {
  const Plan empty = PlanOf(Decode({}));
  EXPECT_EQ(empty.split.items, 0);
  EXPECT_EQ(ViewPlanData(empty.data).merges.size(), 0u);

  const Plan no_keys = PlanOf(Decode({0, 0}, 3));
  EXPECT_EQ(no_keys.split.items, 0);
  EXPECT_EQ(no_keys.split.max_splits, 0);
  EXPECT_EQ(ViewPlanData(no_keys.data).merges.size(), 2u);  // Merge items write the empty rows.

  const Plan no_rows = PlanOf(Decode({100, 200}, 0));
  EXPECT_EQ(no_rows.split.items, 0);
  EXPECT_EQ(ViewPlanData(no_rows.data).blocks.size(), 0u);
}

TEST(Planner, P35_PaddedRequests) {
  RequestOptions request = Decode({5, 0, 0, 77, 0, 1, 16, 0});
  request.q_len = {1, 0, 1, 1, 0, 1, 1, 1};
  const Plan plan = PlanOf(request);
  const PlanDataView view = ViewPlanData(plan.data);
  ASSERT_EQ(view.blocks.size(), 6u);
  for (const contract::RowBlock& block : view.blocks) {
    const bool empty = plan.kv_len[static_cast<std::size_t>(block.request)] == 0;
    EXPECT_EQ(block.splits, empty ? 0 : 1);
  }
  EXPECT_EQ(view.merges.size(), 2u);  // Requests 2 and 7.
}

TEST(Planner, P32_EveryByteOfPlanDataIsDefined) {
  for (std::int64_t batch : {1, 2, 3, 33}) {
    const RequestOptions request =
        Decode(std::vector<std::int64_t>(static_cast<std::size_t>(batch), 5000));
    for (const PlanOptions& options : {PlanOptions{}, Off(), Fixed(100)}) {
      EXPECT_EQ(PlanOf(request, 2, options).data, PlanOf(request, 2, options).data);
    }
  }
}

TEST(Planner, P52_RowsBeforeTheFirstKeySeeNothing) {
  const Plan plan = PlanOf(Decode({15}, 48));
  EXPECT_DOUBLE_EQ(plan.flops, 2.0 * (15 * 16 / 2) * 32 * 256);
  const PlanDataView view = ViewPlanData(plan.data);
  std::int64_t rows = 0;
  for (const contract::RowBlock& block : view.blocks) rows += block.row_count;
  EXPECT_EQ(rows, 48);
  EXPECT_EQ(view.blocks[0].splits, 0);
}

TEST(Planner, P79_AnyGroup) {
  const std::pair<int, int> heads[] = {{1, 1},  {3, 1},  {5, 1},  {24, 4}, {28, 4},
                                       {40, 8}, {56, 8}, {64, 4}, {64, 1}, {7, 1}};
  for (const auto& [q_heads, kv_heads] : heads) {
    RequestOptions request = Decode({5000});
    request.q_heads = q_heads;
    request.kv_heads = kv_heads;
    const Plan plan = PlanOf(request);
    // P80: each KV row is read once, whatever the group.
    EXPECT_EQ(plan.kv_bytes, 5000LL * kv_heads * 128 * 2 * 2);
  }
}

TEST(Planner, FixedCutsAtMultiplesAndAtSegmentBorders) {
  RequestOptions request = Decode({1000});
  SegmentOptions tail;
  tail.kv_len = {300};
  request.segments.push_back(tail);
  std::vector<std::int64_t> begins;
  for (const WorkItemInfo& item : WorkItems(PlanOf(request, 2, Fixed(256)))) {
    begins.push_back(item.key_begin);
  }
  std::sort(begins.begin(), begins.end());
  begins.erase(std::unique(begins.begin(), begins.end()), begins.end());
  EXPECT_EQ(begins, (std::vector<std::int64_t>{0, 256, 512, 768, 1000, 1024, 1280}));
}

TEST(Planner, P30_FixedOverTheLimitNamesTheBytes) {
  RequestBuilder builder(Decode({100000}));
  PlanOptions options = Fixed(100);
  const Plan plan = MakePlan(builder.request, Spec(2), options).value();
  options.workspace_limit_bytes = plan.workspace_bytes;
  EXPECT_TRUE(MakePlan(builder.request, Spec(2), options).ok());
  options.workspace_limit_bytes = plan.workspace_bytes - 1;
  const Result<Plan> refused = MakePlan(builder.request, Spec(2), options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(refused.status().message().find(std::to_string(plan.workspace_bytes)),
            std::string::npos)
      << refused.status().message();
}

TEST(Planner, FixedTooFineIsRefusedBeforeAnythingIsAllocated) {
  // A table that claims 2^39 tokens: page ids are never read, nor written down.
  RequestBuilder builder(Decode({1}));
  auto& cache = std::get<PagedKv>(builder.request.segments[0].kv);
  const std::int64_t page_size = std::int64_t{1} << 39;
  for (CacheSide* side : {&cache.k, &cache.v}) {
    side->data.shape[1] = page_size;
    side->data.stride[1] = 1;  // Tokens over one another: reading needs no memory.
    side->data.stride[0] = 1;
  }
  cache.table.kv_len = builder.Array({page_size});
  const Result<Plan> refused = MakePlan(builder.request, Spec(2), Fixed(1));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.status().field(), "options.fixed_split_rows");
}

// A query for the heads of one rank does not cover those of all ranks, and says so.
TEST(Planner, P47_TheQueryFollowsTheHeads) {
  PlanCapacity capacity{16, 1, 128, 128, 1, 1, 131072, 1, 0};
  PlanOptions options = Fixed(64);
  const std::int64_t of_one_rank = WorkspaceBytes(capacity, Spec(2), options).value();
  capacity.q_heads = 128;
  EXPECT_GE(WorkspaceBytes(capacity, Spec(2), options).value(), 8 * (of_one_rank - 1024));

  RequestOptions request = Decode({131072});
  request.q_heads = 128;
  request.kv_heads = 1;
  RequestBuilder builder(request);
  options.workspace_limit_bytes = of_one_rank;
  EXPECT_EQ(MakePlan(builder.request, Spec(2), options).status().code(),
            StatusCode::kResourceExhausted);
  PlanOptions fitting;
  fitting.workspace_limit_bytes = of_one_rank / 100;
  EXPECT_LE(MakePlan(builder.request, Spec(2), fitting).value().workspace_bytes,
            fitting.workspace_limit_bytes);
}

TEST(Planner, QueryRefusesNonsense) {
  const PlanCapacity good{32, 8, 128, 128, 64, 64, 131072, 1, 0};
  EXPECT_TRUE(WorkspaceBytes(good, Spec(2)).ok());
  PlanCapacity bad = good;
  bad.kv_heads = 5;
  EXPECT_EQ(WorkspaceBytes(bad, Spec(2)).status().field(), "capacity.q_heads");
  bad = good;
  bad.query_rows = -1;
  EXPECT_EQ(WorkspaceBytes(bad, Spec(2)).status().field(), "capacity.query_rows");
  bad = good;
  bad.shared_segments = 2;
  EXPECT_EQ(WorkspaceBytes(bad, Spec(2)).status().field(), "capacity.shared_segments");
}

TEST(Planner, P89_CascadeWhereItPays) {
  EXPECT_GT(PlanOf(Shared(8, 4096, 100)).split.cascade_items, 0);
  EXPECT_GT(PlanOf(Shared(128, 4096, 100)).split.cascade_items, 0);
  EXPECT_EQ(PlanOf(Shared(1, 4096, 100)).split.cascade_items, 0);
  EXPECT_EQ(PlanOf(Shared(8, 1, 100)).split.cascade_items, 0);
  EXPECT_EQ(PlanOf(Shared(8, 0, 100)).split.cascade_items, 0);
  EXPECT_EQ(PlanOf(Shared(8, 4096, 100), 2, Off()).split.cascade_items, 0);
  PlanOptions alone;
  alone.allow_cascade = false;
  const Plan flat = PlanOf(Shared(8, 4096, 100), 2, alone);
  EXPECT_EQ(flat.split.cascade_items, 0);
  EXPECT_LT(PlanOf(Shared(8, 4096, 100)).kv_bytes, flat.kv_bytes / 4);
}

TEST(Planner, KeysThatRotateApartAreNotReadTogether) {
  RequestBuilder builder(Shared(8, 4096, 100));
  builder.request.rope.emplace();
  EXPECT_GT(MakePlan(builder.request, Spec(2)).value().split.cascade_items, 0);
  builder.request.rope->key_positions =
      builder.Array(std::vector<std::int64_t>(static_cast<std::size_t>(8 * 4196), 0));
  EXPECT_EQ(MakePlan(builder.request, Spec(2)).value().split.cascade_items, 0);
}

// A shared prefix that the window has left behind is not read at all.
TEST(Planner, WindowBeyondASharedPrefix) {
  RequestBuilder builder(Shared(8, 4096, 3000));
  builder.request.window_left = 1000;
  const Plan plan = MakePlan(builder.request, Spec(2)).value();
  EXPECT_EQ(plan.split.cascade_items, 0);
  for (const WorkItemInfo& item : WorkItems(plan)) EXPECT_GE(item.key_begin, 4096);
}

TEST(Planner, P81_PagesBeyond32Bits) {
  RequestOptions request = Decode({48});
  RequestBuilder builder(request);
  auto& cache = std::get<PagedKv>(builder.request.segments[0].kv);
  for (CacheSide* side : {&cache.k, &cache.v}) side->data.stride[0] = (std::int64_t{1} << 31) - 16;
  // Keep the outputs clear of the 8 GiB that the pool now spans.
  builder.request.out.data = reinterpret_cast<void*>(std::uintptr_t{1} << 40);
  builder.request.lse.data = reinterpret_cast<void*>(std::uintptr_t{1} << 41);
  const Plan plan = MakePlan(builder.request, Spec(2)).value();
  EXPECT_EQ(plan.copy_widths[2].operand, "segments[0].k.data");
  EXPECT_EQ(plan.copy_widths[2].bytes, 16);
  // The same output within the span is refused, though no page lies there.
  builder.request.out.data = static_cast<char*>(cache.k.data.data) + (std::int64_t{1} << 32);
  EXPECT_EQ(MakePlan(builder.request, Spec(2)).status().field(), "out");
}

TEST(Planner, P84_CopyWidthsFollowEachOperandsStrides) {
  RequestOptions request = Decode({48});
  RequestBuilder builder(request);
  auto& cache = std::get<PagedKv>(builder.request.segments[0].kv);
  cache.k.data.stride[0] *= 2;
  cache.v.data.stride[0] = cache.v.data.stride[0] * 2 + 4;
  cache.v.data.data = static_cast<char*>(cache.v.data.data) + (std::int64_t{1} << 30);
  const Plan plan = MakePlan(builder.request, Spec(2)).value();
  EXPECT_EQ(plan.copy_widths[2].bytes, 16);
  EXPECT_EQ(plan.copy_widths[3].bytes, 8);
}

}  // namespace
}  // namespace kvilt::plan
