// Describe: the plan for a person. See explain_json.cc for programs.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "kvilt/plan.h"

namespace kvilt {
namespace {

std::string Bytes(std::int64_t bytes) {
  constexpr std::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string Count(std::int64_t n, std::string_view one) {
  return fmt::format("{} {}{}", n, one, n == 1 ? "" : "s");
}

// "1024" or "512..131072".
std::string Lengths(const std::vector<std::int64_t>& lengths) {
  if (lengths.empty()) return "0";
  const auto [least, most] = std::minmax_element(lengths.begin(), lengths.end());
  return *least == *most ? fmt::format("{}", *least) : fmt::format("{}..{}", *least, *most);
}

std::string Split(const SplitSummary& split) {
  std::string text(Name(split.mode));
  if (split.mode == SplitMode::kFixed) text += fmt::format(" every {} keys", split.fixed_rows);
  text += ": " + Count(split.items, "work item");
  if (split.max_splits > 1) {
    text += fmt::format(", up to {} splits per row, {} merged", split.max_splits,
                        Count(split.merged_rows, "row"));
  } else {
    text += ", nothing is split";
  }
  if (split.cascade_items > 0) {
    text += fmt::format(", {} of the items read a shared segment for several requests",
                        split.cascade_items);
  }
  return text + fmt::format("; balance {:.3f}", split.balance);
}

class Text {
 public:
  template <class... Args>
  void Line(std::string_view label, fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), "{:<12}", label);
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    text_ += '\n';
  }
  void Blank() { text_ += '\n'; }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

void AddSummary(const Plan& plan, Text& text) {
  text.Line("device", "{}, {}", plan.spec.name, Count(plan.spec.slots, "slot"));
  text.Line("path", "{}, accuracy {}", plan.path(), Name(plan.accuracy));
  text.Line("batch", "{}, q_len {}, kv_len {}; heads {}/{}, head dims {}/{}",
            Count(static_cast<std::int64_t>(plan.q_len.size()), "request"), Lengths(plan.q_len),
            Lengths(plan.kv_len), plan.q_heads, plan.kv_heads, plan.head_dim_qk, plan.head_dim_vo);
  text.Line("tile", "{} query rows (times group) x {} keys, {} per item", plan.launch().tile.q_rows,
            plan.launch().tile.kv_rows, Count(plan.launch().tile.kv_heads, "KV head"));
  text.Line("split", "{}", Split(plan.split));
  text.Line("reads", "{} of KV for {:.3g} Gflop", Bytes(plan.kv_bytes), plan.flops / 1e9);
  text.Line("workspace", "{} for partials; plan data {}", Bytes(plan.workspace_bytes),
            Bytes(plan.plan_data_bytes()));
}

void AddReasons(const Plan& plan, Text& text) {
  std::int64_t total = 0;
  for (const SmemPart& part : plan.launch().smem) total += part.bytes;
  text.Blank();
  text.Line("working set", "{} of {} per slot", Bytes(total),
            Bytes(plan.launch().smem_limit_bytes));
  for (const SmemPart& part : plan.launch().smem)
    text.Line("", "{:<8} {}", part.name, Bytes(part.bytes));
  std::string_view label = "passed over";
  for (const Refusal& refusal : plan.refused) {
    text.Line(label, "{}: {}", refusal.name, refusal.reason);
    label = "";
  }
  label = "copies";
  for (const CopyWidth& width : plan.copy_widths) {
    text.Line(label, "{}: {} at a time", width.operand, Count(width.bytes, "byte"));
    label = "";
  }
  if (plan.spec.read_gb_per_s > 0) {
    text.Line("floor", "{:.1f} us to read the KV at {:.0f} GB/s",
              static_cast<double>(plan.kv_bytes) / plan.spec.read_gb_per_s / 1e3,
              plan.spec.read_gb_per_s);
  }
  text.Line("lse", "base {}, {}", plan.lse_base == LseBase::kTwo ? "2" : "e",
            plan.lse_has_sink ? "with the sink" : "without sink");
}

void AddItems(const Plan& plan, Text& text) {
  text.Blank();
  text.Line("items", "{:>6} {:>8} {:>14} {:>10} {:>20} {:>6} {:>12}", "item", "request", "rows",
            "heads", "keys", "split", "partial row");
  for (const WorkItemInfo& item : WorkItems(plan)) {
    text.Line("", "{:>6} {:>8} {:>14} {:>10} {:>20} {:>6} {:>12}", item.item, item.request,
              fmt::format("{}..{}", item.row_begin, item.row_end),
              fmt::format("{}..{}", item.head_begin, item.head_end),
              fmt::format("{}..{}", item.key_begin, item.key_end), item.split,
              item.partial < 0 ? std::string("-") : fmt::format("{}", item.partial));
  }
}

}  // namespace

std::string Describe(const Plan& plan, DescribeOptions options) {
  Text text;
  AddSummary(plan, text);
  if (options.explain) AddReasons(plan, text);
  if (options.items) AddItems(plan, text);
  return text.Take();
}

}  // namespace kvilt
