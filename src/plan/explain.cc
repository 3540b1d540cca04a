// Describe: the plan for a person. See explain_json.cc for programs.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "kvilt/plan.h"
#include "src/plan/cuda/explain_cuda.h"
#include "src/plan/explain_text.h"

namespace kvilt {
namespace {

using plan::BytesText;
using plan::CountText;
using plan::ExplainText;

// "1024" or "512..131072".
std::string Lengths(const std::vector<std::int64_t>& lengths) {
  if (lengths.empty()) return "0";
  const auto [least, most] = std::minmax_element(lengths.begin(), lengths.end());
  return *least == *most ? fmt::format("{}", *least) : fmt::format("{}..{}", *least, *most);
}

std::string Split(const SplitSummary& split) {
  std::string text(Name(split.mode));
  if (split.mode == SplitMode::kFixed) text += fmt::format(" every {} keys", split.fixed_rows);
  text += ": " + CountText(split.items, "work item");
  if (split.max_splits > 1) {
    text += fmt::format(", up to {} splits per row, {} merged", split.max_splits,
                        CountText(split.merged_rows, "row"));
  } else {
    text += ", nothing is split";
  }
  if (split.cascade_items > 0) {
    text += fmt::format(", {} of the items read a shared segment for several requests",
                        split.cascade_items);
  }
  return text + fmt::format("; balance {:.3f}", split.balance);
}

// The paths of all launches, each once.
std::string Paths(const Plan& plan) {
  std::string text;
  for (const Launch& launch : plan.launches) {
    if (text.find(launch.path) != std::string::npos) continue;
    text += (text.empty() ? "" : ", ") + launch.path;
  }
  return text;
}

void AddSummary(const Plan& plan, ExplainText& text) {
  const bool cuda = plan.spec.kind == DeviceKind::kCuda;
  text.Line("device", "{}, {}", plan.spec.name, CountText(plan.spec.slots, cuda ? "SM" : "slot"));
  text.Line("path", "{}, accuracy {}", Paths(plan), Name(plan.accuracy));
  text.Line("batch", "{}, q_len {}, kv_len {}; heads {}/{}, head dims {}/{}",
            CountText(static_cast<std::int64_t>(plan.q_len.size()), "request"), Lengths(plan.q_len),
            Lengths(plan.kv_len), plan.q_heads, plan.kv_heads, plan.head_dim_qk, plan.head_dim_vo);
  if (cuda) {
    plan::cuda::AddLaunchSummary(plan, text);
  } else {
    text.Line("tile", "{} query rows (times group) x {} keys, {} per item",
              plan.launch().tile.q_rows, plan.launch().tile.kv_rows,
              CountText(plan.launch().tile.kv_heads, "KV head"));
  }
  text.Line("split", "{}", Split(plan.split));
  text.Line("reads", "{} of KV for {:.3g} Gflop", BytesText(plan.kv_bytes), plan.flops / 1e9);
  text.Line("workspace", "{} for partials; plan data {}", BytesText(plan.workspace_bytes),
            BytesText(plan.plan_data_bytes()));
}

void AddWorkingSet(const Plan& plan, ExplainText& text) {
  text.Line("working set", "{} of {} per slot", BytesText(plan.launch().smem_bytes()),
            BytesText(plan.launch().smem_limit_bytes));
  for (const SmemPart& part : plan.launch().smem) {
    text.Line("", "{:<8} {}", part.name, BytesText(part.bytes));
  }
}

void AddReasons(const Plan& plan, ExplainText& text) {
  const bool cuda = plan.spec.kind == DeviceKind::kCuda;
  text.Blank();
  if (!cuda) AddWorkingSet(plan, text);
  std::string_view label = "passed over";
  for (const Refusal& refusal : plan.refused) {
    text.Line(label, "{}: {}", refusal.name, refusal.reason);
    label = "";
  }
  label = "copies";
  for (const CopyWidth& width : plan.copy_widths) {
    text.Line(label, "{}: {} at a time", width.operand, CountText(width.bytes, "byte"));
    label = "";
  }
  if (plan.spec.read_gb_per_s > 0) {
    text.Line("floor", "{:.1f} us to read the KV at {:.0f} GB/s",
              static_cast<double>(plan.kv_bytes) / plan.spec.read_gb_per_s / 1e3,
              plan.spec.read_gb_per_s);
  }
  text.Line("lse", "base {}, {}", plan.lse_base == LseBase::kTwo ? "2" : "e",
            plan.lse_has_sink ? "with the sink" : "without sink");
  if (cuda) plan::cuda::AddLaunchReasons(plan, text);
}

void AddItems(const Plan& plan, ExplainText& text) {
  text.Blank();
  const bool cuda = plan.spec.kind == DeviceKind::kCuda;
  const auto where = [cuda](const std::string& launch, const std::string& block) {
    return cuda ? fmt::format("{:>6} {:>6} ", launch, block) : std::string();
  };
  text.Line("items", "{}{:>6} {:>8} {:>14} {:>10} {:>20} {:>6} {:>12}", where("launch", "block"),
            "item", "request", "rows", "heads", "keys", "split", "partial row");
  for (const WorkItemInfo& item : WorkItems(plan)) {
    text.Line("", "{}{:>6} {:>8} {:>14} {:>10} {:>20} {:>6} {:>12}",
              where(fmt::format("{}", item.launch + 1), fmt::format("{}", item.block)), item.item,
              item.request, fmt::format("{}..{}", item.row_begin, item.row_end),
              fmt::format("{}..{}", item.head_begin, item.head_end),
              fmt::format("{}..{}", item.key_begin, item.key_end), item.split,
              item.partial < 0 ? std::string("-") : fmt::format("{}", item.partial));
  }
}

}  // namespace

std::string Describe(const Plan& plan, DescribeOptions options) {
  ExplainText text;
  AddSummary(plan, text);
  if (options.explain) AddReasons(plan, text);
  if (options.items) AddItems(plan, text);
  return text.Take();
}

}  // namespace kvilt
