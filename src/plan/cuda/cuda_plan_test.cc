// What the planner decides for GPUs, over tables of cases and without a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <tuple>

#include "kvilt/attention.h"
#include "src/contract/attention_args.h"
#include "src/plan/cuda/cost.h"
#include "src/plan/cuda/tiles.h"
#include "src/plan/device_table.h"
#include "src/plan/plan_data.h"
#include "src/plan/request_builder.h"

namespace kvilt::plan::cuda {
namespace {

RequestOptions Nvfp4(std::vector<std::int64_t> kv_len, std::int64_t q_len = 1) {
  RequestOptions request = Decode(std::move(kv_len), q_len);
  request.segments[0].k = request.segments[0].v = DType::kNVFP4;
  request.segments[0].layout = KvLayout::kHND;
  return request;
}

Result<Plan> TryPlan(const RequestOptions& request, const DeviceSpec& spec = CudaSpec(90),
                     const PlanOptions& options = {}) {
  RequestBuilder builder(request);
  builder.Place(DeviceKind::kCuda);
  return MakePlan(builder.request, spec, options);
}
Plan PlanOf(const RequestOptions& request, const DeviceSpec& spec = CudaSpec(90),
            const PlanOptions& options = {}) {
  return TryPlan(request, spec, options).value();
}

std::vector<std::int64_t> Repeat(std::int64_t n, std::int64_t length) {
  return std::vector<std::int64_t>(static_cast<std::size_t>(n), length);
}

// Makespan over total cost / blocks, from the items as kernels walk them.
double Imbalance(const Plan& plan, std::size_t launch) {
  const PlanDataView view = ViewPlanData(plan.data);
  const contract::LaunchInfo& info = view.launches[launch];
  double total = 0;
  double makespan = 0;
  for (int b = 0; b < info.grid; ++b) {
    const auto at = static_cast<std::size_t>(info.slot_begin + b);
    double cost = 0;
    for (int i = view.slot_begins[at]; i < view.slot_begins[at + 1]; ++i) {
      cost += static_cast<double>(view.items[static_cast<std::size_t>(i)].cost);
    }
    total += cost;
    makespan = std::max(makespan, cost);
  }
  return makespan / (total / info.grid);
}

// The skewed batches of TARGETS.md, and the even ones, on every arch.
TEST(CudaPlan, SkewedBatchesAreBalancedWithinTenPercent) {
  std::vector<std::int64_t> one_long = Repeat(63, 1024);
  one_long.push_back(131072);
  std::vector<std::int64_t> log_spaced;
  for (int i = 0; i < 32; ++i)
    log_spaced.push_back(static_cast<std::int64_t>(65536 / std::exp2(i * 7 / 31.0)));
  for (const int arch : CudaArchs()) {
    for (const std::vector<std::int64_t>& kv_len : {one_long, log_spaced, Repeat(1, 131072)}) {
      const Plan plan = PlanOf(Nvfp4(kv_len), CudaSpec(arch));
      ASSERT_EQ(plan.launches.size(), 1u);
      EXPECT_LE(Imbalance(plan, 0), 1.1)
          << "sm_" << arch << ", " << kv_len.size() << " requests, first " << kv_len[0];
      EXPECT_NEAR(plan.launches[0].balance, Imbalance(plan, 0), 0.01);
    }
    // Even batches may stay whole, or cut unevenly, where another cut costs more than it saves: an
    // item's set-up is a tenth of its time here.
    for (const std::vector<std::int64_t>& kv_len :
         {Repeat(16, 8192), Repeat(64, 8192), Repeat(64, 1024), Repeat(128, 2048)}) {
      const Plan plan = PlanOf(Nvfp4(kv_len), CudaSpec(arch));
      EXPECT_LE(Imbalance(plan, 0), 1.2)
          << "sm_" << arch << ", " << kv_len.size() << " x " << kv_len[0];
    }
  }
}

TEST(CudaPlan, MixedBatchesHaveALaunchForEachClass) {
  RequestOptions request = Nvfp4({8192, 8192, 4096, 2048});
  request.q_len = {1, 1, 8, 512};
  const Plan plan = PlanOf(request);
  EXPECT_EQ(plan.launches.size(), 3u);
  std::set<int> rows;
  for (const Launch& launch : plan.launches) {
    rows.insert(launch.tile.q_rows);
    EXPECT_GT(launch.items, 0);
    EXPECT_GT(launch.estimated_us, 0);
  }
  EXPECT_EQ(rows.size(), 3u);
  EXPECT_TRUE(rows.contains(16) && rows.contains(32) && *rows.rbegin() >= 64);
}

// Any group of query heads, wider than any tile too.
TEST(CudaPlan, P79_AnyGroup) {
  const std::pair<int, int> heads[] = {{1, 1},  {3, 1},  {5, 1},  {24, 4}, {28, 4},  {40, 8},
                                       {56, 8}, {64, 4}, {64, 1}, {7, 1},  {128, 1}, {300, 1}};
  for (const auto& [q_heads, kv_heads] : heads) {
    for (const std::int64_t q_len : {1, 3, 200}) {
      RequestOptions request = Nvfp4({5000, 300}, q_len);
      request.q_heads = q_heads;
      request.kv_heads = kv_heads;
      const Plan plan = PlanOf(request);
      std::int64_t vectors = 0;
      for (const contract::RowBlock& block : ViewPlanData(plan.data).blocks) {
        vectors += block.vectors();
        EXPECT_LE(block.q_head_count, q_heads);
      }
      EXPECT_EQ(vectors, 2 * q_len * q_heads) << q_heads << "/" << kv_heads;
    }
  }
}

TEST(CudaPlan, P78_AskedPathAndTileAreTakenOrRefused) {
  PlanOptions options;
  options.path = "cuda/prefill";
  EXPECT_EQ(PlanOf(Nvfp4({4096}), CudaSpec(90), options).path(), options.path);
  // Families whose kernels are still to come; an arch that will not run them either says so first.
  const std::tuple<const char*, int, const char*> refused[] = {
      {"cuda/decode", 90, "the kernel of cuda/decode is not part of this version"},
      {"cuda/prefill_wgmma", 90, "the kernel of cuda/prefill_wgmma is not part of this version"},
      {"cuda/prefill_wgmma", 121, "needs wgmma, which sm_121 has not"}};
  for (const auto& [path, arch, reason] : refused) {
    options.path = path;
    const Status status = TryPlan(Nvfp4({4096}), CudaSpec(arch), options).status();
    EXPECT_EQ(status.code(), StatusCode::kUnsupported) << path;
    EXPECT_EQ(status.field(), "options.path") << path;
    EXPECT_NE(status.message().find(reason), std::string::npos) << status.message();
  }
  options.path = "cuda/magic";
  EXPECT_EQ(TryPlan(Nvfp4({4096}), CudaSpec(90), options).status().field(), "options.path");

  // Another tile than the model's, by its name.
  options.path = "";
  const std::string chosen = PlanOf(Nvfp4({4096})).launch().tile.name;
  options.tile = "prefill 16x32 d128/128 2 warps 4 stages";
  EXPECT_NE(chosen, options.tile);
  EXPECT_EQ(PlanOf(Nvfp4({4096}), CudaSpec(90), options).launch().tile.name, options.tile);
  options.tile = "prefill 16x64 d128/128 4 warps 1 stages 3/SM";
  const Status too_big = TryPlan(Nvfp4({4096}), CudaSpec(121), options).status();
  EXPECT_EQ(too_big.field(), "options.tile");
  for (const char* bytes : {"49408", "33109"}) {
    EXPECT_NE(too_big.message().find(bytes), std::string::npos) << too_big.message();
  }
  options.tile = "decode 8x32 d128/128 16 warps+4 32 stages";
  const Status unbuilt = TryPlan(Nvfp4({4096}), CudaSpec(90), options).status();
  EXPECT_EQ(unbuilt.code(), StatusCode::kUnsupported);
  EXPECT_EQ(unbuilt.field(), "options.tile");
  EXPECT_NE(
      unbuilt.message().find("cuda/decode is not part of this version; accepted: cuda/prefill"),
      std::string::npos)
      << unbuilt.message();
  options.tile = "decode 9x9";
  const Status unknown = TryPlan(Nvfp4({4096}), CudaSpec(90), options).status();
  EXPECT_EQ(unknown.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(unknown.field(), "options.tile");
}

// The nearest miss is of a kernel that exists: what a user can act on.
TEST(CudaPlan, NoTileThatFitsNamesWhatItLacks) {
  DeviceSpec spec = CudaSpec(90);
  spec.registers_per_sm = 2048;
  const Status registers = TryPlan(Nvfp4({4096}), spec).status();
  EXPECT_EQ(registers.code(), StatusCode::kUnsupported);
  EXPECT_EQ(registers.field(), "segments");
  EXPECT_NE(registers.message().find("registers per thread"), std::string::npos)
      << registers.message();
  spec = CudaSpec(90);
  spec.smem_per_block_bytes = 4096;
  const Status smem = TryPlan(Nvfp4({4096}), spec).status();
  EXPECT_NE(smem.message().find("bytes of shared memory in a block"), std::string::npos)
      << smem.message();
}

TEST(CudaPlan, WhatNoKernelTakesIsRefusedByField) {
  RequestOptions request = Decode({64});
  request.segments[0].k = DType::kF32;
  EXPECT_EQ(TryPlan(request).status().field(), "segments[0].k.data.dtype");
  request = Decode({64});
  request.segments[0].v = DType::kF32;
  EXPECT_EQ(TryPlan(request).status().field(), "segments[0].v.data.dtype");
  request = Decode({64});
  request.q = request.segments[0].k = request.segments[0].v = DType::kF32;
  EXPECT_EQ(TryPlan(request).status().field(), "q.dtype");
  request = Decode({64});
  request.segments.resize(static_cast<std::size_t>(contract::kMaxSegments) + 1,
                          request.segments[0]);
  EXPECT_EQ(TryPlan(request).status().field(), "segments");
}

// Kernels index keys with 32 bits from an item's first, and sum in units of one multiplier.
TEST(CudaPlan, LengthsAndMultipliersBeyondF32AndI32AreRefused) {
  RequestOptions request = Nvfp4({(std::int64_t{1} << 30) + 1});
  request.segments[0].page_size = 1 << 20;
  const Status keys = TryPlan(request).status();
  EXPECT_EQ(keys.code(), StatusCode::kUnsupported) << keys.message();
  EXPECT_NE(keys.message().find("2^30"), std::string::npos) << keys.message();

  request = Nvfp4({64});
  request.segments.push_back(request.segments[0]);
  RequestBuilder builder(request);
  builder.Place(DeviceKind::kCuda);
  DecodeScale* const globals[] = {&std::get<PagedKv>(builder.request.segments[0].kv).v.global,
                                  &std::get<PagedKv>(builder.request.segments[1].kv).v.global};
  for (DecodeScale* global : globals) global->allow_unusual = true;
  globals[0]->value = 0x1p30f;
  globals[1]->value = 0x1p-34f;
  EXPECT_TRUE(MakePlan(builder.request, CudaSpec(90)).ok());
  globals[1]->value = 0x1p-35f;
  const Status apart = MakePlan(builder.request, CudaSpec(90)).status();
  EXPECT_EQ(apart.code(), StatusCode::kUnsupported);
  EXPECT_NE(apart.message().find("v.global"), std::string::npos) << apart.message();
}

// Each block of the grid walks a run of the items: one number wrong and a kernel would read beyond.
TEST(CudaPlan, LaunchesMadeByHandAreRefused) {
  const Plan plan = PlanOf(Nvfp4({4096, 100}));
  ASSERT_TRUE(CheckPlanData(plan.data).ok());
  const contract::PlanHeader& header = *ViewPlanData(plan.data).header;
  for (const contract::i64 slot : {contract::i64{0}, contract::i64{header.slots} - 1}) {
    for (const int value : {-1, header.items + 1, 1 << 30}) {
      std::vector<std::byte> data = plan.data;
      std::memcpy(data.data() + header.slots_offset + 4 * slot, &value, 4);
      EXPECT_FALSE(CheckPlanData(data).ok()) << slot << " " << value;
    }
  }
  contract::LaunchInfo launch = ViewPlanData(plan.data).launches[0];
  launch.grid += 1 << 20;
  std::vector<std::byte> data = plan.data;
  std::memcpy(data.data() + header.launches_offset, &launch, sizeof(launch));
  EXPECT_FALSE(CheckPlanData(data).ok());
}

TEST(CudaPlan, AccuracyModesThatNoKernelHasAreRefused) {
  for (const Accuracy accuracy : {Accuracy::kNearExact, Accuracy::kF32}) {
    PlanOptions options;
    options.accuracy = accuracy;
    const Status status = TryPlan(Nvfp4({4096}), CudaSpec(90), options).status();
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_EQ(status.field(), "options.accuracy");
  }
}

RequestOptions ThreeDtypes() {
  RequestOptions request = Decode({64, 64});
  SegmentOptions bulk;
  bulk.k = bulk.v = DType::kNVFP4;
  bulk.kv_len = {20000, 500};
  SegmentOptions tail;
  tail.kv_len = {16, 3};
  request.segments.push_back(bulk);
  request.segments.push_back(tail);
  return request;
}

// P28: a launch for each pair of dtypes; all of them in one tile where rows may not be split.
TEST(CudaPlan, P28_SegmentsOfSeveralDtypes) {
  const Plan split = PlanOf(ThreeDtypes());
  EXPECT_EQ(split.launches.size(), 2u);
  EXPECT_GE(split.split.max_splits, 3);
  PlanOptions options;
  options.split = SplitMode::kOff;
  const Plan off = PlanOf(ThreeDtypes(), CudaSpec(90), options);
  ASSERT_EQ(off.launches.size(), 1u);
  EXPECT_TRUE(off.launch().mixed_dtypes);
  EXPECT_EQ(off.split.max_splits, 1);
  EXPECT_EQ(off.workspace_bytes, 0);
  options = {};
  options.workspace_limit_bytes = 0;
  const Plan none = PlanOf(ThreeDtypes(), CudaSpec(90), options);
  EXPECT_TRUE(none.launch().mixed_dtypes);
  EXPECT_EQ(none.workspace_bytes, 0);
}

RequestOptions Shared(std::int64_t batch, std::int64_t prefix, std::int64_t own) {
  RequestOptions request = Nvfp4(Repeat(batch, own));
  SegmentOptions shared = request.segments[0];
  shared.kv_len = {prefix};
  for (std::int64_t r = 0; r < batch; ++r) shared.owners.push_back(static_cast<std::int32_t>(r));
  request.segments.insert(request.segments.begin(), shared);
  return request;
}

TEST(CudaPlan, P89_CascadeWhereItPays) {
  const Plan many = PlanOf(Shared(128, 4096, 100));
  EXPECT_GT(many.split.cascade_items, 0);
  PlanOptions alone;
  alone.allow_cascade = false;
  const Plan flat = PlanOf(Shared(128, 4096, 100), CudaSpec(90), alone);
  EXPECT_EQ(flat.split.cascade_items, 0);
  EXPECT_LT(many.kv_bytes, flat.kv_bytes / 4);
  double cascade_us = 0, flat_us = 0;
  for (const Launch& launch : many.launches) cascade_us += launch.estimated_us;
  for (const Launch& launch : flat.launches) flat_us += launch.estimated_us;
  EXPECT_LT(cascade_us, flat_us);
  EXPECT_EQ(PlanOf(Shared(1, 4096, 100)).split.cascade_items, 0);
  EXPECT_EQ(PlanOf(Shared(8, 1, 100)).split.cascade_items, 0);
  PlanOptions fixed;
  fixed.split = SplitMode::kFixed;
  fixed.fixed_split_rows = 1024;
  EXPECT_EQ(PlanOf(Shared(128, 4096, 100), CudaSpec(90), fixed).split.cascade_items, 0);
}

// P31: verify rows are packed with the group and cut like decode, in one launch; where reading
// matters, each key is read once for all of them.
TEST(CudaPlan, P31_VerifyIsOneLaunchWithItsRowsTogether) {
  for (const std::int64_t kv : {8192, 131072}) {
    const Plan plan = PlanOf(Nvfp4({kv}, 4));
    ASSERT_EQ(plan.launches.size(), 1u);
    EXPECT_EQ(plan.launch().tile.q_rows, 16);
    EXPECT_EQ(plan.kv_bytes, kv * 8 * 2 * 72);  // Every key once.
  }
}

TEST(CudaPlan, P35_P36_EmptyRequests) {
  RequestOptions request = Nvfp4({5, 0, 0, 77, 0, 1, 16, 0});
  request.q_len = {1, 0, 1, 1, 0, 1, 1, 1};
  const Plan plan = PlanOf(request);
  std::int64_t empty = 0;
  for (const contract::RowBlock& block : ViewPlanData(plan.data).blocks) {
    if (block.splits == 0) empty += block.vectors();
  }
  EXPECT_EQ(empty, 2 * 32);
  EXPECT_EQ(PlanOf(Nvfp4({})).split.items, 0);
  EXPECT_EQ(PlanOf(Nvfp4({0, 0})).split.items, 0);
  EXPECT_EQ(PlanOf(Nvfp4({100}, 0)).split.items, 0);
}

TEST(CudaPlan, P38_WindowBoundsTheBytesRead) {
  RequestBuilder builder(Nvfp4({131072}));
  builder.Place(DeviceKind::kCuda);
  builder.request.window_left = 1023;
  const Plan windowed = MakePlan(builder.request, CudaSpec(90)).value();
  const Plan whole = PlanOf(Nvfp4({1024}));
  EXPECT_EQ(windowed.kv_bytes, whole.kv_bytes);
  EXPECT_LE(windowed.launch().estimated_us, 1.3 * whole.launch().estimated_us);
}

// More heads or a smaller device never lose blocks: what peers stop splitting for.
TEST(CudaPlan, P92_TimeFollowsTheBytesForEveryDtype) {
  for (const DType dtype : {DType::kBF16, DType::kE4M3, DType::kNVFP4}) {
    double last = 0;
    for (const std::int64_t kv : {8192, 32768, 131072}) {
      RequestOptions request = Nvfp4({kv});
      request.segments[0].k = request.segments[0].v = dtype;
      const Launch launch = PlanOf(request).launch();
      EXPECT_GT(launch.estimated_us, last);
      // Decoding limits quantized keys until a kernel reads packed codes into fragments.
      const double most = dtype == DType::kBF16 ? 0.6 : 0.2;
      EXPECT_GT(launch.roofline_us / launch.estimated_us, kv >= 131072 ? most : 0.04)
          << Name(dtype) << " " << kv;
      last = launch.estimated_us;
    }
  }
}

}  // namespace
}  // namespace kvilt::plan::cuda
