// Test support: what holds for the lists of every plan, CPU and GPU.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "src/contract/visibility.h"
#include "src/plan/plan_data.h"
#include "src/plan/random_request.h"

namespace kvilt::plan {

using contract::i64;
using contract::KeyRange;

inline KeyRange VisibleRow(const AttentionRequest& request, const contract::RequestInfo& info,
                           i64 row) {
  const contract::Visibility visibility{static_cast<int>(request.mask), request.window_left,
                                        request.window_right};
  const i64 position = request.q_positions.defined() ? request.q_positions[info.q_row_begin + row]
                                                     : row + info.kv_len - info.q_len;
  return contract::VisibleKeys(visibility, row, info.q_len, info.kv_len, position);
}

// For each query head, blocks tile the rows of each request, in order.
inline void CheckBlocks(const PlanDataView& view) {
  const int q_heads = view.header->q_heads;
  std::vector<i64> next(view.requests.size() * static_cast<std::size_t>(q_heads), 0);
  for (const contract::RowBlock& block : view.blocks) {
    RC_ASSERT(block.row_count > 0);
    RC_ASSERT(block.q_head_count > 0);
    RC_ASSERT(block.q_head_begin + block.q_head_count <= q_heads);
    for (int h = block.q_head_begin; h < block.q_head_begin + block.q_head_count; ++h) {
      i64& row = next[static_cast<std::size_t>(block.request * q_heads + h)];
      RC_ASSERT(block.row_begin == row);
      row += block.row_count;
    }
  }
  for (std::size_t i = 0; i < next.size(); ++i) {
    RC_ASSERT(next[i] == view.requests[i / static_cast<std::size_t>(q_heads)].q_len);
  }
}

// The KV heads of an item that lie in a row block.
inline std::pair<int, int> HeadsOf(const PlanDataView& view, const contract::WorkItem& item,
                                   const contract::RowBlock& block) {
  const int group = view.header->q_heads / view.header->kv_heads;
  const int end = contract::CeilDiv(block.q_head_begin + block.q_head_count, group);
  return {std::max(item.head_begin, block.q_head_begin / group),
          std::min(item.head_begin + item.head_count, end)};
}

// For each block and KV head, the items' ranges by split.
using SplitRanges = std::map<std::tuple<int, int>, std::map<int, KeyRange>>;

inline SplitRanges RangesOf(const PlanDataView& view) {
  SplitRanges ranges;
  for (const contract::WorkItem& item : view.items) {
    RC_ASSERT(item.key_begin < item.key_end);
    RC_ASSERT(item.head_count > 0);
    RC_ASSERT(item.span_count > 0);
    RC_ASSERT(item.head_begin + item.head_count <= view.header->kv_heads);
    for (int s = item.span_begin; s < item.span_begin + item.span_count; ++s) {
      const contract::WorkSpan& span = view.spans[static_cast<std::size_t>(s)];
      const contract::RowBlock& block = view.blocks[static_cast<std::size_t>(span.block)];
      const auto [begin, end] = HeadsOf(view, item, block);
      RC_ASSERT(begin < end);
      for (int h = begin; h < end; ++h) {
        const bool added = ranges[{span.block, h}]
                               .emplace(span.split, KeyRange{item.key_begin, item.key_end})
                               .second;
        RC_ASSERT(added);
      }
    }
  }
  return ranges;
}

// Every head of every block: splits 0..n-1, in key order, without gaps, over all visible keys.
inline void CheckCoverage(const AttentionRequest& request, const PlanDataView& view) {
  const SplitRanges ranges = RangesOf(view);
  const int group = view.header->q_heads / view.header->kv_heads;
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
    const int last = contract::CeilDiv(block.q_head_begin + block.q_head_count, group);
    for (int h = block.q_head_begin / group; h < last; ++h) {
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

inline void CheckPartials(const Plan& plan, const PlanDataView& view) {
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
  if (plan.options.capacity) {
    RC_ASSERT(view.partials().Bytes() <= plan.workspace_bytes);
  } else {
    RC_ASSERT(view.partials().Bytes() == plan.workspace_bytes);
  }
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

inline void CheckSummary(const Plan& plan, const PlanDataView& view) {
  i64 max_splits = 0;
  i64 merged = 0;
  for (const contract::RowBlock& block : view.blocks) {
    max_splits = std::max<i64>(max_splits, block.splits);
    if (block.splits > 1) merged += block.vectors();
  }
  RC_ASSERT(plan.split.items == static_cast<i64>(view.items.size()));
  RC_ASSERT(plan.split.max_splits == max_splits);
  RC_ASSERT(plan.split.merged_rows == merged / view.header->q_heads);
  RC_ASSERT(plan.split.balance >= 0.999);
}

// WorkItems says what the lists say.
inline void CheckWorkItems(const Plan& plan, const PlanDataView& view) {
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
    RC_ASSERT(info.head_begin < info.head_end);
    RC_ASSERT(info.row_end <= plan.q_len[static_cast<std::size_t>(info.request)]);
    RC_ASSERT(info.key_end <= plan.kv_len[static_cast<std::size_t>(info.request)]);
    RC_ASSERT(info.partial < view.header->partials);
  }
}

inline void CheckPlan(const AttentionRequest& request, const Plan& plan) {
  const PlanDataView view = ViewPlanData(plan.data);
  CheckBlocks(view);
  CheckCoverage(request, view);
  CheckPartials(plan, view);
  CheckSummary(plan, view);
  CheckWorkItems(plan, view);
}

// The least capacity that the case is within.
inline PlanCapacity CapacityOf(const RandomCase& c) {
  PlanCapacity capacity;
  const AttentionRequest& request = c.request();
  capacity.q_heads = static_cast<int>(request.q.shape[1]);
  capacity.head_dim_qk =
      static_cast<int>(request.q.shape[2]) * (request.q.dtype == DType::kNVFP4 ? 2 : 1);
  capacity.head_dim_vo = static_cast<int>(request.out.shape[2]);
  const TensorView& k = request.segments[0].k().data;
  const bool nhd = request.segments[0].k().layout == KvLayout::kNHD;
  capacity.kv_heads = static_cast<int>(k.shape[k.rank - (nhd ? 2 : 3)]);
  capacity.requests = request.batch();
  capacity.query_rows = request.q.shape[0];
  for (std::int64_t length : c.kv_len) capacity.kv_len = std::max(capacity.kv_len, length);
  capacity.segments = static_cast<int>(request.segments.size());
  for (const Segment& segment : request.segments) {
    capacity.shared_segments += !segment.owners.empty();
  }
  return capacity;
}

// The size query holds for every mode; and kAuto fits whatever it is given. `check`: of each plan.
template <class Check>
void CheckWorkspaceFits(RandomCase& c, Check&& check) {
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
    check(fitted);
  }
}

}  // namespace kvilt::plan
