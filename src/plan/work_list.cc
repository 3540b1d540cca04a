#include "src/plan/work_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>

#include "src/core/check.h"
#include "src/plan/cost_model.h"

namespace kvilt::plan {
namespace {

using contract::i64;

class WorkListBuilder {
 public:
  WorkListBuilder(const SplitContext& context, const KeyRuns& runs)
      : context_(context), runs_(runs), members_(runs.members) {}

  Result<PlanLists> Build() {
    KVILT_RETURN_IF_ERROR(CheckCounts());
    CutRuns();
    NumberSplits();
    AddRequests();
    AddBlocks();
    lists_.spans.reserve(borders_.size());
    lists_.items.reserve(borders_.size());
    for (std::size_t i = 0; i < runs_.runs.size(); ++i) AddItems(i);
    const auto costlier = [](const auto& a, const auto& b) { return a.cost > b.cost; };
    if (!std::is_sorted(lists_.items.begin(), lists_.items.end(), costlier)) {
      std::stable_sort(lists_.items.begin(), lists_.items.end(), costlier);
    }
    AddMerges();
    FillHeader();
    return std::move(lists_);
  }

 private:
  Status CheckCounts() const {
    double items = 0;
    double spans = 0;
    double merges = 0;
    for (const KeyRun& run : runs_.runs) {
      items += static_cast<double>(run.splits) * run.head_groups;
      spans += static_cast<double>(run.splits) * static_cast<double>(run.member_count);
    }
    for (const PlannedBlock& block : context_.blocks)
      merges += static_cast<double>(block.row_count);
    const double most = std::max({items, spans, merges});
    if (most <= static_cast<double>(kMaxListEntries)) return {};
    if (context_.options.split == SplitMode::kFixed) {
      return Status::Exhausted(
          "options.fixed_split_rows",
          fmt::format("{} makes {:.0f} work items, expected <= {}: use longer "
                      "splits",
                      context_.options.fixed_split_rows, most, kMaxListEntries));
    }
    return Status::Exhausted("q_indptr", fmt::format("the batch makes {:.0f} work items, expected "
                                                     "<= {}",
                                                     most, kMaxListEntries));
  }

  // Borders of each run, one after another; rounding to tiles may merge some splits.
  void CutRuns() {
    borders_begin_.reserve(runs_.runs.size() + 1);
    borders_begin_.push_back(0);
    std::vector<std::int64_t> cuts;
    for (const KeyRun& run : runs_.runs) {
      CutsOf(context_, run, cuts);
      KVILT_CHECK(static_cast<std::int64_t>(cuts.size()) <= run.splits + 1);
      borders_.insert(borders_.end(), cuts.begin(), cuts.end());
      borders_begin_.push_back(static_cast<std::int64_t>(borders_.size()));
    }
  }

  std::int64_t SplitsOf(std::size_t run) const {
    return borders_begin_[run + 1] - borders_begin_[run] - 1;
  }

  void NumberSplits() {
    block_splits_.assign(context_.blocks.size(), 0);
    for (std::size_t b = 0; b < context_.blocks.size(); ++b) {
      for (std::int64_t i = runs_.block_begin[b]; i < runs_.block_begin[b + 1]; ++i) {
        const KeyRuns::BlockRun& entry = runs_.block_runs[static_cast<std::size_t>(i)];
        members_[static_cast<std::size_t>(entry.member)].first_split = block_splits_[b];
        block_splits_[b] += SplitsOf(static_cast<std::size_t>(entry.run));
      }
    }
  }

  void AddRequests() {
    const RequestGeometry& geometry = context_.geometry;
    lists_.requests.reserve(static_cast<std::size_t>(geometry.batch));
    i64 keys = 0;
    for (std::int64_t r = 0; r < geometry.batch; ++r) {
      contract::RequestInfo& info = lists_.requests.emplace_back();
      info.q_row_begin = geometry.q_begin[static_cast<std::size_t>(r)];
      info.q_len = geometry.q_len(r);
      info.kv_len = geometry.kv_len(r);
      info.mask_byte_begin = geometry.mask_begin[static_cast<std::size_t>(r)];
      info.key_position_begin = keys;
      keys += info.kv_len;
    }
    lists_.segment_begins.assign(geometry.segment_begins.begin(), geometry.segment_begins.end());
  }

  void AddBlocks() {
    lists_.blocks.reserve(context_.blocks.size());
    i64 rows = 0;
    for (std::size_t b = 0; b < context_.blocks.size(); ++b) {
      const PlannedBlock& planned = context_.blocks[b];
      contract::RowBlock& block = lists_.blocks.emplace_back();
      block.request = planned.request;
      block.splits = static_cast<int>(block_splits_[b]);
      block.row_begin = planned.row_begin;
      block.row_count = planned.row_count;
      if (block.splits > 1) {
        block.partial_row = rows;
        rows += block.splits * block.row_count;
      }
    }
    lists_.header.partial_rows = rows;
  }

  void AddItems(std::size_t index) {
    const KeyRun& run = runs_.runs[index];
    const auto member_begin = runs_.runs[index].member_begin;
    const std::int64_t head_rows = run.rows * context_.dims.group();
    for (std::int64_t split = 0; split < SplitsOf(index); ++split) {
      const auto span_begin = static_cast<int>(lists_.spans.size());
      for (std::int64_t m = member_begin; m < member_begin + run.member_count; ++m) {
        const RunMember& member = members_[static_cast<std::size_t>(m)];
        lists_.spans.push_back({member.block, static_cast<int>(member.first_split + split)});
      }
      contract::WorkItem item;
      item.span_begin = span_begin;
      item.span_count = static_cast<int>(run.member_count);
      item.key_begin = borders_[static_cast<std::size_t>(borders_begin_[index] + split)];
      item.key_end = borders_[static_cast<std::size_t>(borders_begin_[index] + split + 1)];
      const double key_cost =
          context_.costs.Range(run.request, {item.key_begin, item.key_end}, head_rows);
      AddHeadGroups(run, key_cost, static_cast<double>(head_rows), item);
    }
  }

  // The item once for each group of heads, the groups as equal as they can be.
  void AddHeadGroups(const KeyRun& run, double key_cost, double head_rows,
                     contract::WorkItem item) {
    const int heads = context_.dims.kv_heads;
    item.head_begin = 0;
    for (int g = 0; g < run.head_groups; ++g) {
      item.head_count = heads / run.head_groups + (g < heads % run.head_groups);
      const double cost =
          key_cost * item.head_count + SetupCost(head_rows, item.head_count, context_.dims.dims());
      item.cost = std::llround(std::min(cost, 0x1p62));
      lists_.items.push_back(item);
      item.head_begin += item.head_count;
    }
  }

  void AddMerges() {
    for (std::size_t b = 0; b < lists_.blocks.size(); ++b) {
      const contract::RowBlock& block = lists_.blocks[b];
      if (block.splits == 1) continue;
      const i64 row_elements =
          i64{context_.dims.q_heads} * context_.dims.head_dim_vo * std::max(block.splits, 1);
      const i64 rows = std::max<i64>(1, kMergeElements / row_elements);
      for (i64 row = 0; row < block.row_count; row += rows) {
        contract::MergeItem& merge = lists_.merges.emplace_back();
        merge.block = static_cast<int>(b);
        merge.row_begin = row;
        merge.row_count = std::min<i64>(rows, block.row_count - row);
      }
    }
  }

  void FillHeader() {
    contract::PlanHeader& header = lists_.header;
    header.batch = static_cast<int>(context_.geometry.batch);
    header.segments = static_cast<int>(context_.geometry.segments.size());
    header.q_heads = context_.dims.q_heads;
    header.kv_heads = context_.dims.kv_heads;
    header.head_dim_qk = context_.dims.head_dim_qk;
    header.head_dim_vo = context_.dims.head_dim_vo;
  }

  const SplitContext& context_;
  const KeyRuns& runs_;
  std::vector<RunMember> members_;
  std::vector<std::int64_t> borders_;
  std::vector<std::int64_t> borders_begin_;
  std::vector<std::int64_t> block_splits_;
  PlanLists lists_;
};

// Makespan of the items taken in order by whichever slot is free first, over the ideal.
double Balance(const std::vector<contract::WorkItem>& items, int slots) {
  if (items.empty()) return 1;
  std::priority_queue<double, std::vector<double>, std::greater<>> free_at;
  double total = 0;
  double makespan = 0;
  for (const contract::WorkItem& item : items) {
    double start = 0;
    if (free_at.size() == static_cast<std::size_t>(slots)) {
      start = free_at.top();
      free_at.pop();
    }
    const double end = start + static_cast<double>(item.cost);
    makespan = std::max(makespan, end);
    total += static_cast<double>(item.cost);
    free_at.push(end);
  }
  return makespan * slots / total;
}

}  // namespace

Result<PlanLists> MakeWorkLists(const SplitContext& context, const KeyRuns& runs) {
  return WorkListBuilder(context, runs).Build();
}

SplitSummary Summarize(const PlanLists& lists, const SplitContext& context) {
  SplitSummary summary;
  summary.mode = context.options.split;
  summary.fixed_rows = context.options.fixed_split_rows;
  summary.items = static_cast<std::int64_t>(lists.items.size());
  for (const contract::RowBlock& block : lists.blocks) {
    summary.max_splits = std::max<std::int64_t>(summary.max_splits, block.splits);
    if (block.splits > 1) summary.merged_rows += block.row_count;
  }
  for (const contract::WorkItem& item : lists.items) summary.cascade_items += item.span_count > 1;
  summary.balance = Balance(lists.items, context.spec.slots);
  return summary;
}

}  // namespace kvilt::plan
