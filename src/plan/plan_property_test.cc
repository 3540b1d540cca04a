// Properties of every plan: each visible key of each row once, partials apart, limits kept.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <tuple>

#include "src/contract/visibility.h"
#include "src/plan/plan_data.h"
#include "src/plan/random_request.h"

namespace kvilt::plan {
namespace {

using contract::i64;
using contract::KeyRange;

KeyRange VisibleRow(const AttentionRequest& request, const contract::RequestInfo& info, i64 row) {
  const contract::Visibility visibility{static_cast<int>(request.mask), request.window_left,
                                        request.window_right};
  const i64 position = request.q_positions.defined() ? request.q_positions[info.q_row_begin + row]
                                                     : row + info.kv_len - info.q_len;
  return contract::VisibleKeys(visibility, row, info.q_len, info.kv_len, position);
}

// Blocks tile the rows of each request, in order.
void CheckBlocks(const PlanDataView& view) {
  std::vector<i64> next(view.requests.size(), 0);
  for (const contract::RowBlock& block : view.blocks) {
    i64& row = next[static_cast<std::size_t>(block.request)];
    RC_ASSERT(block.row_begin == row);
    RC_ASSERT(block.row_count > 0);
    row += block.row_count;
  }
  for (std::size_t r = 0; r < next.size(); ++r) RC_ASSERT(next[r] == view.requests[r].q_len);
}

// For each block and KV head, the items' ranges by split.
using SplitRanges = std::map<std::tuple<int, int>, std::map<int, KeyRange>>;

SplitRanges RangesOf(const PlanDataView& view) {
  SplitRanges ranges;
  for (const contract::WorkItem& item : view.items) {
    RC_ASSERT(item.key_begin < item.key_end);
    RC_ASSERT(item.head_count > 0);
    RC_ASSERT(item.head_begin + item.head_count <= view.header->kv_heads);
    for (int s = item.span_begin; s < item.span_begin + item.span_count; ++s) {
      const contract::WorkSpan& span = view.spans[static_cast<std::size_t>(s)];
      for (int h = item.head_begin; h < item.head_begin + item.head_count; ++h) {
        const bool added = ranges[{span.block, h}]
                               .emplace(span.split, KeyRange{item.key_begin, item.key_end})
                               .second;
        RC_ASSERT(added);  // No split of a head twice.
      }
    }
  }
  return ranges;
}

// Every head of every block: splits 0..n-1, in key order, without gaps, over all visible keys.
void CheckCoverage(const AttentionRequest& request, const PlanDataView& view) {
  const SplitRanges ranges = RangesOf(view);
  for (std::size_t b = 0; b < view.blocks.size(); ++b) {
    const contract::RowBlock& block = view.blocks[b];
    const contract::RequestInfo& info = view.requests[static_cast<std::size_t>(block.request)];
    KeyRange visible{info.kv_len, 0};
    for (i64 i = block.row_begin; i < block.row_begin + block.row_count; ++i) {
      const KeyRange row = VisibleRow(request, info, i);
      if (row.empty()) continue;
      visible.begin = std::min(visible.begin, row.begin);
      visible.end = std::max(visible.end, row.end);
    }
    for (int h = 0; h < view.header->kv_heads; ++h) {
      const auto found = ranges.find({static_cast<int>(b), h});
      if (found == ranges.end()) {
        RC_ASSERT(block.splits == 0);
        RC_ASSERT(visible.empty());
        continue;
      }
      RC_ASSERT(static_cast<int>(found->second.size()) == block.splits);
      int split = 0;
      i64 next = found->second.begin()->second.begin;
      RC_ASSERT(next == visible.begin);  // Nothing before what some row sees.
      for (const auto& [index, keys] : found->second) {
        RC_ASSERT(index == split++);
        RC_ASSERT(keys.begin == next);
        next = keys.end;
      }
      RC_ASSERT(next == visible.end);
    }
  }
}

void CheckPartials(const Plan& plan, const PlanDataView& view) {
  i64 next = 0;
  std::map<int, i64> merged;
  for (const contract::RowBlock& block : view.blocks) {
    if (block.splits <= 1) {
      RC_ASSERT(block.partial_begin == -1);
      continue;
    }
    RC_ASSERT(block.partial_begin == next);
    next += block.splits * block.vectors();
  }
  RC_ASSERT(view.header->partials == next);
  RC_ASSERT(view.partials().Bytes() == plan.workspace_bytes);
  for (const contract::MergeItem& merge : view.merges) {
    RC_ASSERT(merge.begin == merged[merge.block]);
    RC_ASSERT(merge.count > 0);
    merged[merge.block] += merge.count;
  }
  for (std::size_t b = 0; b < view.blocks.size(); ++b) {
    const i64 expected = view.blocks[b].splits == 1 ? 0 : view.blocks[b].vectors();
    RC_ASSERT(merged[static_cast<int>(b)] == expected);
  }
}

void CheckSummary(const Plan& plan, const PlanDataView& view) {
  i64 max_splits = 0;
  i64 merged_rows = 0;
  for (const contract::RowBlock& block : view.blocks) {
    max_splits = std::max<i64>(max_splits, block.splits);
    if (block.splits > 1) merged_rows += block.row_count;
  }
  RC_ASSERT(plan.split.items == static_cast<i64>(view.items.size()));
  RC_ASSERT(plan.split.max_splits == max_splits);
  RC_ASSERT(plan.split.merged_rows == merged_rows);
  RC_ASSERT(plan.split.balance >= 0.999);
  for (std::size_t i = 1; i < view.items.size(); ++i) {
    RC_ASSERT(view.items[i - 1].cost >= view.items[i].cost);
  }
}

// WorkItems says what the lists say.
void CheckWorkItems(const Plan& plan, const PlanDataView& view) {
  const std::vector<WorkItemInfo> infos = WorkItems(plan);
  std::size_t spans = 0;
  for (const contract::WorkItem& item : view.items) {
    spans += static_cast<std::size_t>(item.span_count);
  }
  RC_ASSERT(infos.size() == spans);
  for (const WorkItemInfo& info : infos) {
    const contract::WorkItem& item = view.items[static_cast<std::size_t>(info.item)];
    RC_ASSERT(info.key_begin == item.key_begin);
    RC_ASSERT(info.key_end == item.key_end);
    RC_ASSERT(info.row_end <= plan.q_len[static_cast<std::size_t>(info.request)]);
    RC_ASSERT(info.key_end <= plan.kv_len[static_cast<std::size_t>(info.request)]);
    RC_ASSERT(info.partial < view.header->partials);
  }
}

void CheckPlan(const AttentionRequest& request, const Plan& plan) {
  const PlanDataView view = ViewPlanData(plan.data);
  CheckBlocks(view);
  CheckCoverage(request, view);
  CheckPartials(plan, view);
  CheckSummary(plan, view);
  CheckWorkItems(plan, view);
}

WorkspaceCapacity CapacityOf(const RandomCase& c) {
  WorkspaceCapacity capacity;
  const AttentionRequest& request = c.request();
  capacity.q_heads = static_cast<int>(request.q.shape[1]);
  capacity.head_dim_qk = static_cast<int>(request.q.shape[2]);
  capacity.head_dim_vo = static_cast<int>(request.out.shape[2]);
  const TensorView& k = request.segments[0].k().data;
  capacity.kv_heads = static_cast<int>(k.shape[k.rank - 2]);
  capacity.query_rows = request.q.shape[0];
  for (std::int64_t length : c.kv_len) capacity.kv_len = std::max(capacity.kv_len, length);
  capacity.segments = static_cast<int>(request.segments.size());
  for (const Segment& segment : request.segments) {
    capacity.shared_segments += !segment.owners.empty();
  }
  return capacity;
}

RC_GTEST_PROP(PlanProperty, EachVisibleKeyOnceAndPartialsApart, ()) {
  const RandomCase c = MakeRandomCase();
  const Plan plan = MakePlan(c.request(), c.spec, c.options).value();
  CheckPlan(c.request(), plan);
  RC_TAG(std::string(Name(plan.split.mode)) + (plan.split.max_splits > 1 ? " split" : "") +
         (plan.split.cascade_items > 0 ? " cascade" : ""));
}

RC_GTEST_PROP(PlanProperty, EqualInputsMakeEqualPlans, ()) {
  const RandomCase c = MakeRandomCase();
  RC_ASSERT(MakePlan(c.request(), c.spec, c.options).value() ==
            MakePlan(c.request(), c.spec, c.options).value());
}

// The size query holds for every mode; and kAuto fits whatever it is given.
RC_GTEST_PROP(PlanProperty, P30_WorkspaceNeverExceedsTheQueryAndAutoFitsAnyLimit, ()) {
  RandomCase c = MakeRandomCase();
  const Plan plan = MakePlan(c.request(), c.spec, c.options).value();
  const std::int64_t query = WorkspaceBytes(CapacityOf(c), c.spec, c.options).value();
  RC_ASSERT(plan.workspace_bytes <= query);
  if (c.options.split != SplitMode::kAuto) return;

  c.options.workspace_limit_bytes = query;
  RC_ASSERT(MakePlan(c.request(), c.spec, c.options).value().data == plan.data);
  for (std::int64_t limit : {query - 1, query / 2, query / 16, plan.workspace_bytes - 1,
                             plan.workspace_bytes / 2, std::int64_t{0}}) {
    c.options.workspace_limit_bytes = std::max<std::int64_t>(limit, 0);
    const Plan fitted = MakePlan(c.request(), c.spec, c.options).value();
    RC_ASSERT(fitted.workspace_bytes <= c.options.workspace_limit_bytes);
    CheckPlan(c.request(), fitted);
  }
}

// The splits of one request, whoever shares the batch.
using RequestSplits = std::vector<std::tuple<i64, i64, i64, i64, i64>>;
RequestSplits SplitsOf(const Plan& plan, std::int64_t request) {
  RequestSplits splits;
  for (const WorkItemInfo& info : WorkItems(plan)) {
    if (info.request != request) continue;
    splits.emplace_back(info.row_begin, info.row_end, info.split, info.key_begin, info.key_end);
  }
  std::sort(splits.begin(), splits.end());
  splits.erase(std::unique(splits.begin(), splits.end()), splits.end());
  return splits;
}

// kFixed: cuts at multiples of n and at segment borders, the same alone and in a batch.
RC_GTEST_PROP(PlanProperty, P42_FixedSplitsDependOnTheRequestAlone, ()) {
  const std::int64_t n = OneOf<std::int64_t>({17, 64, 100, 256, 1024});
  const std::int64_t prefix = OneOf<std::int64_t>({0, 100, 4096});
  const std::int64_t own = Pick(1, 9000);
  const std::int64_t q_len = OneOf<std::int64_t>({1, 4, 40});
  const std::int64_t others = Pick(1, 20);
  const std::int64_t slot = Pick(0, others);
  const DeviceSpec spec = CpuSpec(SimdTarget::kAvx512Bf16, 2);
  PlanOptions options;
  options.split = SplitMode::kFixed;
  options.fixed_split_rows = n;

  const auto plan_of = [&](bool batched) {
    RequestOptions request;
    SegmentOptions shared;
    SegmentOptions tail;
    shared.kv_len = {prefix};
    for (std::int64_t r = 0; r <= (batched ? others : 0); ++r) {
      const bool is_it = !batched || r == slot;
      request.q_len.push_back(is_it ? q_len : Pick(0, 5));
      tail.kv_len.push_back(is_it ? own : Pick(0, 3000));
      shared.owners.push_back(static_cast<std::int32_t>(r));
    }
    request.segments = {shared, tail};
    RequestBuilder builder(request);
    builder.request.window_left = 6000;
    return MakePlan(builder.request, spec, options).value();
  };
  const RequestSplits alone = SplitsOf(plan_of(false), 0);
  RC_ASSERT(SplitsOf(plan_of(true), slot) == alone);
  for (const auto& [row_begin, row_end, split, key_begin, key_end] : alone) {
    if (split > 0) RC_ASSERT(key_begin % n == 0 || key_begin == prefix);
    RC_ASSERT(key_end - key_begin <= n);
  }
}

// P38: what is read is what some row of the block sees; a window bounds it, wherever it lies.
RC_GTEST_PROP(PlanProperty, P38_ItemsStayInsideTheWindow, ()) {
  RandomCase c = MakeRandomCase(true);
  AttentionRequest& request = c.builder->request;
  request.window_left = Pick(0, 2000);
  request.window_right = -1;
  request.q_positions = {};
  const Plan plan = MakePlan(request, c.spec, c.options).value();
  for (const WorkItemInfo& info : WorkItems(plan)) {
    const std::int64_t kv_len = plan.kv_len[static_cast<std::size_t>(info.request)];
    RC_ASSERT(info.key_begin >= kv_len - 1 - request.window_left);
  }
}

}  // namespace
}  // namespace kvilt::plan
