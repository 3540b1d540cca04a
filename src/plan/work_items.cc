// Names of the plan's enums, and the work list for people and tests.
#include <algorithm>
#include <utility>

#include "kvilt/plan.h"
#include "src/contract/types.h"
#include "src/plan/plan_data.h"

namespace kvilt {

std::string_view Name(SplitMode mode) {
  switch (mode) {
    case SplitMode::kAuto:
      return "auto";
    case SplitMode::kFixed:
      return "fixed";
    case SplitMode::kOff:
      return "off";
  }
  return "unknown split mode";
}

std::string_view Name(Accuracy accuracy) {
  switch (accuracy) {
    case Accuracy::kNormal:
      return "normal";
    case Accuracy::kNearExact:
      return "near_exact";
    case Accuracy::kF32:
      return "f32";
  }
  return "unknown accuracy";
}

namespace {

// Launch and block of the grid of each item of a GPU plan; zeros on the CPU.
class GridCursor {
 public:
  explicit GridCursor(const plan::PlanDataView& view) : view_(view) {}

  std::pair<int, int> Find(int item) const {
    for (std::size_t l = 0; l < view_.launches.size(); ++l) {
      const contract::LaunchInfo& launch = view_.launches[l];
      const auto begins = view_.slot_begins.subspan(static_cast<std::size_t>(launch.slot_begin),
                                                    static_cast<std::size_t>(launch.grid) + 1);
      if (item >= begins.back()) continue;
      const auto after = std::upper_bound(begins.begin(), begins.end(), item);
      return {static_cast<int>(l), static_cast<int>(after - begins.begin()) - 1};
    }
    return {0, 0};
  }

 private:
  const plan::PlanDataView& view_;
};

}  // namespace

std::vector<WorkItemInfo> WorkItems(const Plan& plan) {
  std::vector<WorkItemInfo> infos;
  if (plan.data.empty()) return infos;
  const plan::PlanDataView view = plan::ViewPlanData(plan.data);
  const GridCursor grid(view);
  for (std::size_t i = 0; i < view.items.size(); ++i) {
    const contract::WorkItem& item = view.items[i];
    const auto [launch, slot] = grid.Find(static_cast<int>(i));
    const int group = view.header->q_heads / view.header->kv_heads;
    for (int s = item.span_begin; s < item.span_begin + item.span_count; ++s) {
      const contract::WorkSpan& span = view.spans[static_cast<std::size_t>(s)];
      const contract::RowBlock& block = view.blocks[static_cast<std::size_t>(span.block)];
      WorkItemInfo& info = infos.emplace_back();
      info.launch = launch;
      info.block = slot;
      info.item = static_cast<std::int64_t>(i);
      info.request = block.request;
      info.row_begin = block.row_begin;
      info.row_end = block.row_begin + block.row_count;
      // The item's heads within the row block, which on a GPU has some of the item's.
      info.head_begin = std::max(item.head_begin, block.q_head_begin / group);
      info.head_end = std::min(item.head_begin + item.head_count,
                               contract::CeilDiv(block.q_head_begin + block.q_head_count, group));
      info.key_begin = item.key_begin;
      info.key_end = item.key_end;
      info.split = span.split;
      info.cost = item.cost;
      if (block.splits > 1) info.partial = block.partial_begin + span.split * block.vectors();
    }
  }
  return infos;
}

}  // namespace kvilt
