// Names of the plan's enums, and the work list for people and tests.
#include "kvilt/plan.h"
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

std::vector<WorkItemInfo> WorkItems(const Plan& plan) {
  std::vector<WorkItemInfo> infos;
  if (plan.data.empty()) return infos;
  const plan::PlanDataView view = plan::ViewPlanData(plan.data);
  for (std::size_t i = 0; i < view.items.size(); ++i) {
    const contract::WorkItem& item = view.items[i];
    for (int s = item.span_begin; s < item.span_begin + item.span_count; ++s) {
      const contract::WorkSpan& span = view.spans[static_cast<std::size_t>(s)];
      const contract::RowBlock& block = view.blocks[static_cast<std::size_t>(span.block)];
      WorkItemInfo& info = infos.emplace_back();
      info.item = static_cast<std::int64_t>(i);
      info.request = block.request;
      info.row_begin = block.row_begin;
      info.row_end = block.row_begin + block.row_count;
      info.head_begin = item.head_begin;
      info.head_end = item.head_begin + item.head_count;
      info.key_begin = item.key_begin;
      info.key_end = item.key_end;
      info.split = span.split;
      if (block.splits > 1) info.partial_row = contract::PartialRow(block, span.split, 0);
    }
  }
  return infos;
}

}  // namespace kvilt
