// Properties of every GPU plan, without a GPU.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>

#include "src/plan/cuda/cost.h"
#include "src/plan/cuda/tiles.h"
#include "src/plan/plan_checks.h"
#include "src/plan/planner.h"

namespace kvilt::plan::cuda {
namespace {

// Grids, blocks and tiles of the launches.
void CheckLaunches(const AttentionRequest& request, const Plan& plan) {
  const PlanDataView view = ViewPlanData(plan.data);
  const int group = plan.q_heads / plan.kv_heads;
  RC_ASSERT(view.launches.size() == plan.launches.size());
  int next_item = 0;
  for (std::size_t l = 0; l < view.launches.size(); ++l) {
    const contract::LaunchInfo& launch = view.launches[l];
    const contract::TileShape& tile = launch.tile;
    RC_ASSERT(launch.grid == plan.spec.slots * tile.blocks_per_sm);
    RC_ASSERT(contract::SmemBytes(tile) <= plan.launches[l].smem_limit_bytes);
    RC_ASSERT(contract::SmemBytes(tile) == plan.launches[l].smem_bytes());
    RC_ASSERT(contract::RingRuleHolds(tile));
    const auto begins = view.slot_begins.subspan(static_cast<std::size_t>(launch.slot_begin),
                                                 static_cast<std::size_t>(launch.grid) + 1);
    RC_ASSERT(begins.front() == next_item);
    RC_ASSERT(std::is_sorted(begins.begin(), begins.end()));
    next_item = begins.back();
    for (int i = begins.front(); i < begins.back(); ++i) {
      const contract::WorkItem& item = view.items[static_cast<std::size_t>(i)];
      RC_ASSERT(item.head_count == tile.kv_heads);
      RC_ASSERT(item.head_begin % tile.kv_heads == 0);
      // Packed rows of one KV head: each member's block of that head.
      i64 rows = 0;
      int request_of_item = -1;
      for (int s = item.span_begin; s < item.span_begin + item.span_count; ++s) {
        const contract::RowBlock& block =
            view.blocks[static_cast<std::size_t>(view.spans[static_cast<std::size_t>(s)].block)];
        request_of_item = block.request;
        if (block.q_head_begin / group == item.head_begin) {
          rows += block.row_count * std::min(block.q_head_count, group);
        }
      }
      RC_ASSERT(rows > 0);
      RC_ASSERT(rows <= tile.q_rows);
      // Formats of every segment that it reads.
      for (std::size_t s = 0; s < request.segments.size(); ++s) {
        const auto segment = static_cast<i64>(s);
        const i64 begin = view.segment_begin(request_of_item, segment);
        const i64 end = view.segment_begin(request_of_item, segment + 1);
        if (std::max(begin, item.key_begin) >= std::min(end, item.key_end)) continue;
        if (tile.k_format == contract::kAnyFormat) continue;
        RC_ASSERT(static_cast<int>(request.segments[s].k().data.dtype) == tile.k_format);
        RC_ASSERT(static_cast<int>(request.segments[s].v().data.dtype) == tile.v_format);
      }
    }
  }
  RC_ASSERT(next_item == static_cast<int>(view.items.size()));
}

RC_GTEST_PROP(CudaProperty, EachVisibleKeyOnceAndPartialsApart, ()) {
  const RandomCase c = MakeRandomCase(false, true);
  const Plan plan = MakePlan(c.request(), c.spec, c.options).value();
  CheckPlan(c.request(), plan);
  CheckLaunches(c.request(), plan);
  RC_TAG(std::string(Name(plan.split.mode)) + (plan.split.max_splits > 1 ? " split" : "") +
         (plan.split.cascade_items > 0 ? " cascade" : ""));
}

RC_GTEST_PROP(CudaProperty, EqualInputsMakeEqualPlans, ()) {
  const RandomCase c = MakeRandomCase(false, true);
  RC_ASSERT(MakePlan(c.request(), c.spec, c.options).value() ==
            MakePlan(c.request(), c.spec, c.options).value());
}

RC_GTEST_PROP(CudaProperty, P30_WorkspaceNeverExceedsTheQueryAndAutoFitsAnyLimit, ()) {
  RandomCase c = MakeRandomCase(false, true);
  CheckWorkspaceFits(c, [&](const Plan& plan) {
    CheckPlan(c.request(), plan);
    CheckLaunches(c.request(), plan);
  });
}

// A plan with room: sizes hold for every batch within, launches stay, each update is counted.
RC_GTEST_PROP(CudaProperty, P33_UpdatesWithinTheCapacityKeepTheLaunch, ()) {
  RandomCase c = MakeRandomCase(Pick(0, 1) == 0, true);
  c.options.capacity = CapacityOf(c);
  c.options.capacity->requests += Pick(0, 3);
  c.options.capacity->kv_len += Pick(0, 5000);
  PlanScratch scratch;
  Plan plan;
  RC_ASSERT(MakePlanWith(c.request(), c.spec, c.options, scratch, plan).ok());
  CheckPlan(c.request(), plan);
  RC_ASSERT(plan.workspace_bytes == WorkspaceBytes(*c.options.capacity, c.spec, c.options).value());

  // The same request with shorter keys: the same tables, read less far.
  const Plan before = plan;
  AttentionRequest shorter = c.request();
  std::vector<std::vector<std::int64_t>> lengths;
  lengths.reserve(shorter.segments.size());
  for (Segment& segment : shorter.segments) {
    if (segment.paged() == nullptr) continue;
    IndexArray& kv_len = std::get<PagedKv>(segment.kv).table.kv_len;
    std::vector<std::int64_t>& less = lengths.emplace_back();
    for (std::int64_t r = 0; r < kv_len.size; ++r) less.push_back(Pick(0, kv_len[r]));
    kv_len = IndexArray(std::span<const std::int64_t>(less));
  }
  if (shorter.mask == MaskMode::kCustom || shorter.mask == MaskMode::kTree) return;
  const Status updated = Replan(shorter, scratch, plan);
  RC_ASSERT(updated.ok());
  CheckPlan(shorter, plan);
  CheckLaunches(shorter, plan);
  RC_ASSERT(plan.data.size() == before.data.size());
  RC_ASSERT(plan.workspace_bytes == before.workspace_bytes);
  const PlanDataView now = ViewPlanData(plan.data), then = ViewPlanData(before.data);
  RC_ASSERT(now.header->generation == then.header->generation + 1);
  for (std::size_t l = 0; l < now.launches.size(); ++l) {
    RC_ASSERT(now.launches[l].tile == then.launches[l].tile);
    RC_ASSERT(now.launches[l].grid == then.launches[l].grid);
  }
  RC_ASSERT(now.header->items_offset == then.header->items_offset);
  RC_ASSERT(now.header->merges_offset == then.header->merges_offset);
}

// Blocks idle only where what is left is too little to hand out, or where cutting would cost more
// in partials and their merge than it saves.
RC_GTEST_PROP(CudaProperty, BlocksAreBusyAsFarAsTheWorkAllows, ()) {
  RandomCase c = MakeRandomCase(false, true);
  c.options.split = SplitMode::kAuto;
  c.options.fixed_split_rows = 0;
  const Plan plan = MakePlan(c.request(), c.spec, c.options).value();
  const PlanDataView view = ViewPlanData(plan.data);
  for (const contract::LaunchInfo& launch : view.launches) {
    const contract::TileShape& tile = launch.tile;
    double total = 0;
    double makespan = 0;
    i64 longest = 0;
    for (int b = 0; b < launch.grid; ++b) {
      const auto at = static_cast<std::size_t>(launch.slot_begin + b);
      double cost = 0;
      for (int i = view.slot_begins[at]; i < view.slot_begins[at + 1]; ++i) {
        const contract::WorkItem& item = view.items[static_cast<std::size_t>(i)];
        longest = std::max<i64>(longest, item.key_end - item.key_begin);
        cost += static_cast<double>(item.cost);
      }
      total += cost;
      makespan = std::max(makespan, cost);
    }
    const double ideal = total / launch.grid;
    const double merged_bytes =
        4.0 * launch.grid * tile.kv_heads * tile.q_rows * (tile.head_dim_vo + 3) * 4;
    const double merge_us =
        kMergeUs + kMergeSplitUs * launch.grid + merged_bytes / (plan.spec.read_gb_per_s * 1e3);
    const double merge = merge_us * plan.spec.clock_ghz * 1e3;
    const bool bounded = 2 * view.header->partials > plan.spec.slots * kPartialsPerSm;
    RC_ASSERT(bounded || longest < 4 * kMinSplitKeys + tile.kv_rows ||
              makespan <= 1.1 * ideal + merge + 4 * kItemCycles);
  }
}

// P42, P43, P71: the splits, tile and launch of a request follow from itself.
RC_GTEST_PROP(CudaProperty, P42_FixedPlansDependOnTheRequestAlone, ()) {
  const std::int64_t n = OneOf<std::int64_t>({17, 64, 100, 256, 1024});
  const std::int64_t own = Pick(1, 9000);
  const std::int64_t q_len = OneOf<std::int64_t>({1, 4, 40});
  const std::int64_t others = Pick(1, 20);
  const std::int64_t slot = Pick(0, others);
  const DeviceSpec spec = RandomCudaSpec();
  PlanOptions options;
  options.split = SplitMode::kFixed;
  options.fixed_split_rows = n;
  struct Found {
    std::vector<std::tuple<i64, i64, i64, i64, i64, int, int>> items;
    contract::TileShape tile;
  };
  const auto find = [&](bool batched, std::int64_t page_size) {
    RequestOptions request;
    request.mask = MaskMode::kCausal;
    SegmentOptions segment;
    segment.page_size = page_size;
    segment.k = segment.v = DType::kNVFP4;
    for (std::int64_t r = 0; r <= (batched ? others : 0); ++r) {
      const bool is_it = !batched || r == slot;
      request.q_len.push_back(is_it ? q_len : Pick(0, 70));
      segment.kv_len.push_back(is_it ? own : Pick(0, 3000));
    }
    request.segments = {segment};
    RequestBuilder builder(request);
    builder.Place(DeviceKind::kCuda);
    const Plan plan = MakePlan(builder.request, spec, options).value();
    const PlanDataView view = ViewPlanData(plan.data);
    Found found;
    for (const WorkItemInfo& info : WorkItems(plan)) {
      if (info.request != (batched ? slot : 0)) continue;
      found.items.emplace_back(info.row_begin, info.row_end, info.split, info.key_begin,
                               info.key_end, info.head_begin, info.head_end);
      found.tile = view.launches[static_cast<std::size_t>(info.launch)].tile;
    }
    std::sort(found.items.begin(), found.items.end());
    // How bytes are copied never changes them.
    found.tile.copy_bytes = found.tile.bulk_copy = 0;
    return found;
  };
  const Found alone = find(false, 16);
  for (const std::int64_t page_size : {1, 16, 128}) {
    const Found batched = find(true, page_size);
    RC_ASSERT(batched.items == alone.items);
    RC_ASSERT(batched.tile == alone.tile);
  }
}

}  // namespace
}  // namespace kvilt::plan::cuda
