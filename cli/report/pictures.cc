#include "cli/report/pictures.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/report/axis.h"
#include "cli/report/svg.h"
#include "cli/terminal.h"

namespace kvilt::cli::report {
namespace {

constexpr double kWidth = 860;
constexpr double kLeft = 120;
constexpr int kColors = 5;

std::string RowColor(std::size_t row) {
  return fmt::format("c{}", row % static_cast<std::size_t>(kColors));
}

// Neighbouring splits alternate in strength, so that cuts show.
std::string SplitCss(std::size_t row, std::size_t index) {
  return fmt::format("mark {} {}", RowColor(row), index % 2 == 0 ? "strong" : "soft");
}

void DrawRequests(Svg& svg, const std::vector<WorkRow>& rows, const Scale& x, double top,
                  double pitch, std::int64_t kv_heads) {
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const double y = top + pitch * static_cast<double>(r);
    const double height = pitch - 8;
    svg.Text({kLeft - 12, y + height / 2 + 4}, rows[r].label, "label", Anchor::kEnd);
    const double head_height = height / static_cast<double>(std::max<std::int64_t>(kv_heads, 1));
    for (std::size_t i = 0; i < rows[r].items.size(); ++i) {
      const WorkRect& item = rows[r].items[i];
      const double left = x(static_cast<double>(item.key_begin));
      const double width = x(static_cast<double>(item.key_end)) - left;
      const auto heads = static_cast<double>(item.head_end - item.head_begin);
      svg.Rect(left + 0.5, y + head_height * static_cast<double>(item.head_begin) + 0.5,
               std::max(1.0, width - 1), std::max(1.0, head_height * heads - 1), SplitCss(r, i),
               fmt::format("item {}: keys {} to {}, KV heads {} to {}", item.item, item.key_begin,
                           item.key_end, item.head_begin, item.head_end - 1),
               1.5);
    }
  }
}

void DrawLanes(Svg& svg, const std::vector<WorkRow>& rows, const std::vector<WorkLane>& lanes,
               const Scale& x, double top, double pitch) {
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    const double y = top + pitch * static_cast<double>(lane);
    svg.Text({kLeft - 12, y + (pitch - 6) / 2 + 4}, fmt::format("thread {}", lane), "label",
             Anchor::kEnd);
    double at = 0;
    for (std::size_t i = 0; i < lanes[lane].size(); ++i) {
      const WorkBlock& block = lanes[lane][i];
      const double left = x(at);
      at += block.cost;
      const std::string name = block.row < rows.size() ? rows[block.row].label : std::string();
      svg.Rect(left + 0.5, y, std::max(1.0, x(at) - left - 1), pitch - 6, SplitCss(block.row, i),
               fmt::format("item {} of {}", block.item, name), 1.5);
    }
  }
}

}  // namespace

std::vector<WorkLane> AssignToLanes(const std::vector<WorkBlock>& items, std::int64_t lanes) {
  std::vector<WorkLane> assigned(static_cast<std::size_t>(lanes));
  std::vector<double> busy(assigned.size(), 0.0);
  for (const WorkBlock& item : items) {
    const auto lane =
        static_cast<std::size_t>(std::min_element(busy.begin(), busy.end()) - busy.begin());
    assigned[lane].push_back(item);
    busy[lane] += item.cost;
  }
  return assigned;
}

std::string WorkPicture(std::string_view title, const std::vector<WorkRow>& rows,
                        const std::vector<WorkLane>& lanes, std::int64_t kv_heads) {
  constexpr double kTop = 30, kRow = 30, kRight = kWidth - 20;
  const double lane_pitch = lanes.size() > 8 ? 18 : 26;
  const double requests_bottom = kTop + kRow * static_cast<double>(rows.size());
  const double lanes_top = requests_bottom + 76;
  const double lanes_bottom = lanes_top + lane_pitch * static_cast<double>(lanes.size());
  Svg svg(kWidth, lanes_bottom + 44, title);

  double keys = 1, busiest = 1;
  for (const WorkRow& row : rows) keys = std::max(keys, static_cast<double>(row.keys));
  for (const WorkLane& lane : lanes) {
    double cost = 0;
    for (const WorkBlock& block : lane) cost += block.cost;
    busiest = std::max(busiest, cost);
  }
  const Scale x{0, keys, kLeft, kRight, false};
  svg.Text({kLeft, kTop - 14}, "each request, cut into work items (KV heads x keys)", "axis-title");
  std::vector<double> ticks;
  for (int quarter = 0; quarter <= 4; ++quarter) ticks.push_back(keys * quarter / 4);
  DrawXAxis(
      svg, x, kTop - 6, requests_bottom, ticks,
      [](double v) { return HumanTokens(static_cast<std::int64_t>(v)); }, "key position");
  DrawRequests(svg, rows, x, kTop, kRow, kv_heads);

  const Scale load{0, busiest, kLeft, kRight, false};
  svg.Text({kLeft, lanes_top - 14}, "the same items on the threads, in the plan's order",
           "axis-title");
  DrawLanes(svg, rows, lanes, load, lanes_top, lane_pitch);
  svg.Line({kLeft, lanes_bottom}, {kRight, lanes_bottom}, "axis");
  svg.Text({kRight, lanes_bottom + 20}, "modelled work, keys x KV heads", "axis-title",
           Anchor::kEnd);
  return svg.Finish();
}

std::string PagePicture(std::string_view title, const std::vector<PageRow>& rows) {
  constexpr double kTop = 44, kRow = 34, kCell = 44, kHidden = 150;
  Svg svg(kWidth, kTop + kRow * static_cast<double>(rows.size()) + 16, title);
  constexpr const char* kCss[] = {"page-shared", "page-copied", "page-own"};
  constexpr const char* kNames[] = {"shared", "copied on write", "its own"};
  for (std::size_t kind = 0; kind < 3; ++kind) {
    const double left = kLeft + 165 * static_cast<double>(kind);
    svg.Rect(left, 8, 22, 14, kCss[kind], {}, 3);
    svg.Text({left + 30, 19}, kNames[kind], "note");
  }
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const double y = kTop + kRow * static_cast<double>(r);
    svg.Text({kLeft - 12, y + 17}, rows[r].label, "label", Anchor::kEnd);
    double left = kLeft;
    if (rows[r].hidden > 0) {
      svg.Rect(left, y, kHidden, kRow - 8, "page-shared", {}, 3);
      svg.Text({left + kHidden / 2, y + 17}, fmt::format("{} shared pages", rows[r].hidden),
               "page-text", Anchor::kMiddle);
      left += kHidden + 4;
    }
    for (const PageCell& cell : rows[r].cells) {
      const auto kind = static_cast<std::size_t>(cell.kind);
      svg.Rect(left, y, kCell, kRow - 8, "page-empty", {}, 3);
      svg.Rect(
          left, y, kCell * std::clamp(cell.filled, 0.0, 1.0), kRow - 8, kCss[kind],
          fmt::format("page {}, {}, {:.0f} % full", cell.page, kNames[kind], 100 * cell.filled), 3);
      svg.Text({left + kCell / 2, y + 17}, fmt::format("{}", cell.page), "page-text",
               Anchor::kMiddle);
      left += kCell + 4;
    }
  }
  return svg.Finish();
}

}  // namespace kvilt::cli::report
