#include "src/plan/work_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <tuple>

#include "src/core/check.h"
#include "src/plan/cost_model.h"

namespace kvilt::plan {
namespace {

using contract::i64;

// Where the partials of each split block lie in the workspace, one block after another.
void PlacePartials(PlanLists& lists) {
  i64 partials = 0;
  for (contract::RowBlock& block : lists.blocks) {
    if (block.splits <= 1) continue;
    block.partial_begin = partials;
    partials += block.splits * block.vectors();
  }
  lists.header.partials = partials;
}

// Counts over the lists; balance is left alone.
SplitSummary CountSplits(const PlanLists& lists, const PlanOptions& options) {
  SplitSummary summary;
  summary.mode = options.split;
  summary.fixed_rows = options.fixed_split_rows;
  summary.items = static_cast<std::int64_t>(lists.items.size());
  i64 vectors = 0;
  for (const contract::RowBlock& block : lists.blocks) {
    summary.max_splits = std::max<std::int64_t>(summary.max_splits, block.splits);
    if (block.splits > 1) vectors += block.vectors();
  }
  if (lists.header.q_heads > 0) summary.merged_rows = vectors / lists.header.q_heads;
  for (const contract::WorkItem& item : lists.items) {
    const int blocks = lists.spans[static_cast<std::size_t>(item.span_begin)].block;
    const int last =
        lists.spans[static_cast<std::size_t>(item.span_begin + item.span_count - 1)].block;
    const auto request = [&](int block) {
      return lists.blocks[static_cast<std::size_t>(block)].request;
    };
    summary.cascade_items += request(blocks) != request(last);
  }
  return summary;
}

class WorkListBuilder {
 public:
  WorkListBuilder(const SplitContext& context, const KeyRuns& runs, WorkListScratch& scratch,
                  PlanLists& lists)
      : context_(context), runs_(runs), scratch_(scratch), lists_(lists) {}

  Status Build() {
    lists_.clear();
    scratch_.members.assign(runs_.members.begin(), runs_.members.end());
    KVILT_RETURN_IF_ERROR(CheckCounts());
    CutRuns();
    NumberSplits();
    lists_.requests.resize(static_cast<std::size_t>(context_.geometry.batch));
    WriteRequests(context_.geometry, lists_.requests.data());
    lists_.segment_begins.assign(context_.geometry.segment_begins.begin(),
                                 context_.geometry.segment_begins.end());
    AddBlocks();
    lists_.spans.reserve(scratch_.borders.size());
    lists_.items.reserve(scratch_.borders.size());
    for (std::size_t i = 0; i < runs_.runs.size(); ++i) AddItems(i);
    // Equal costs in the order of their making, which a stable sort would keep but allocate for.
    const auto before = [](const contract::WorkItem& a, const contract::WorkItem& b) {
      return std::tuple(-a.cost, a.span_begin, a.head_begin) <
             std::tuple(-b.cost, b.span_begin, b.head_begin);
    };
    if (!std::is_sorted(lists_.items.begin(), lists_.items.end(), before)) {
      std::sort(lists_.items.begin(), lists_.items.end(), before);
    }
    AddMerges();
    FillHeader(context_.geometry, lists_.header);
    return {};
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
    return CheckListCounts(std::max({items, spans, merges}), context_.options);
  }

  // Borders of each run, one after another; rounding to tiles may merge some splits.
  void CutRuns() {
    std::vector<std::int64_t>& begins = scratch_.borders_begin;
    scratch_.borders.clear();
    begins.clear();
    begins.reserve(runs_.runs.size() + 1);
    begins.push_back(0);
    for (const KeyRun& run : runs_.runs) {
      CutsOf(context_, run, scratch_.cuts);
      KVILT_CHECK(static_cast<std::int64_t>(scratch_.cuts.size()) <= run.splits + 1);
      scratch_.borders.insert(scratch_.borders.end(), scratch_.cuts.begin(), scratch_.cuts.end());
      begins.push_back(static_cast<std::int64_t>(scratch_.borders.size()));
    }
  }

  std::int64_t SplitsOf(std::size_t run) const {
    return scratch_.borders_begin[run + 1] - scratch_.borders_begin[run] - 1;
  }

  void NumberSplits() {
    scratch_.block_splits.assign(context_.blocks.size(), 0);
    for (std::size_t b = 0; b < context_.blocks.size(); ++b) {
      for (std::int64_t i = runs_.block_begin[b]; i < runs_.block_begin[b + 1]; ++i) {
        const KeyRuns::BlockRun& entry = runs_.block_runs[static_cast<std::size_t>(i)];
        scratch_.members[static_cast<std::size_t>(entry.member)].first_split =
            scratch_.block_splits[b];
        scratch_.block_splits[b] += SplitsOf(static_cast<std::size_t>(entry.run));
      }
    }
  }

  // Every block has all heads: items cut them, but not into splits of their own.
  void AddBlocks() {
    lists_.blocks.reserve(context_.blocks.size());
    for (std::size_t b = 0; b < context_.blocks.size(); ++b) {
      const PlannedBlock& planned = context_.blocks[b];
      contract::RowBlock& block = lists_.blocks.emplace_back();
      block.request = planned.request;
      block.splits = static_cast<int>(scratch_.block_splits[b]);
      block.q_head_count = context_.dims.q_heads;
      block.row_begin = planned.row_begin;
      block.row_count = planned.row_count;
    }
    PlacePartials(lists_);
  }

  void AddItems(std::size_t index) {
    const KeyRun& run = runs_.runs[index];
    const std::int64_t head_rows = run.rows * context_.dims.group();
    for (std::int64_t split = 0; split < SplitsOf(index); ++split) {
      const auto span_begin = static_cast<int>(lists_.spans.size());
      for (std::int64_t m = run.member_begin; m < run.member_begin + run.member_count; ++m) {
        const RunMember& member = scratch_.members[static_cast<std::size_t>(m)];
        lists_.spans.push_back({member.block, static_cast<int>(member.first_split + split)});
      }
      contract::WorkItem item;
      item.span_begin = span_begin;
      item.span_count = static_cast<int>(run.member_count);
      const auto border = static_cast<std::size_t>(scratch_.borders_begin[index] + split);
      item.key_begin = scratch_.borders[border];
      item.key_end = scratch_.borders[border + 1];
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
      const i64 step = rows * block.q_head_count;
      for (i64 vector = 0; vector < block.vectors(); vector += step) {
        contract::MergeItem& merge = lists_.merges.emplace_back();
        merge.block = static_cast<int>(b);
        merge.begin = vector;
        merge.count = std::min<i64>(step, block.vectors() - vector);
      }
    }
  }

  const SplitContext& context_;
  const KeyRuns& runs_;
  WorkListScratch& scratch_;
  PlanLists& lists_;
};

// Makespan of the items taken in order by whichever slot is free first, over the ideal.
double Balance(const std::vector<contract::WorkItem>& items, int slots,
               std::vector<double>& free_at) {
  if (items.empty()) return 1;
  free_at.clear();
  double total = 0;
  double makespan = 0;
  for (const contract::WorkItem& item : items) {
    double start = 0;
    if (free_at.size() == static_cast<std::size_t>(slots)) {
      std::pop_heap(free_at.begin(), free_at.end(), std::greater<>());
      start = free_at.back();
      free_at.pop_back();
    }
    const double end = start + static_cast<double>(item.cost);
    makespan = std::max(makespan, end);
    total += static_cast<double>(item.cost);
    free_at.push_back(end);
    std::push_heap(free_at.begin(), free_at.end(), std::greater<>());
  }
  return makespan * slots / total;
}

}  // namespace

Status CheckListCounts(double most, const PlanOptions& options) {
  if (most <= static_cast<double>(kMaxListEntries)) return {};
  if (options.split == SplitMode::kFixed) {
    return Status::Exhausted("options.fixed_split_rows",
                             fmt::format("{} makes {:.0f} work items, expected <= {}: use longer "
                                         "splits",
                                         options.fixed_split_rows, most, kMaxListEntries));
  }
  return Status::Exhausted("q_indptr", fmt::format("the batch makes {:.0f} work items, expected "
                                                   "<= {}",
                                                   most, kMaxListEntries));
}

void WriteRequests(const RequestGeometry& geometry, contract::RequestInfo* requests) {
  const auto batch = static_cast<std::size_t>(geometry.batch);
  const std::size_t segments = geometry.segments.size();
  i64 keys = 0;
  for (std::size_t r = 0; r < batch; ++r) {
    contract::RequestInfo& info = requests[r];
    info.q_row_begin = geometry.q_begin[r];
    info.q_len = geometry.q_begin[r + 1] - geometry.q_begin[r];
    info.kv_len = geometry.segment_begins[r * (segments + 1) + segments];
    info.mask_byte_begin = geometry.mask_begin[r];
    info.key_position_begin = keys;
    keys += info.kv_len;
  }
}

void FillHeader(const RequestGeometry& geometry, contract::PlanHeader& header) {
  header.batch = static_cast<int>(geometry.batch);
  header.segments = static_cast<int>(geometry.segments.size());
  header.q_heads = geometry.q_heads;
  header.kv_heads = geometry.kv_heads;
  header.head_dim_qk = geometry.head_dim_qk;
  header.head_dim_vo = geometry.head_dim_vo;
}

Status MakeWorkLists(const SplitContext& context, const KeyRuns& runs, WorkListScratch& scratch,
                     PlanLists& lists) {
  return WorkListBuilder(context, runs, scratch, lists).Build();
}

SplitSummary Summarize(const PlanLists& lists, const SplitContext& context,
                       WorkListScratch& scratch) {
  SplitSummary summary = CountSplits(lists, context.options);
  summary.balance = Balance(lists.items, context.spec.slots, scratch.free_at);
  return summary;
}

}  // namespace kvilt::plan
