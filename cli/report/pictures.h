// Pictures of a plan and of a page pool.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvilt::cli::report {

// One work item of one request: KV heads x keys.
struct WorkRect {
  std::int64_t item = 0;
  std::int64_t head_begin = 0;
  std::int64_t head_end = 0;
  std::int64_t key_begin = 0;
  std::int64_t key_end = 0;
};
struct WorkRow {
  std::string label;
  std::int64_t keys = 0;
  std::vector<WorkRect> items;
};
// What one thread does in order; cost = keys x heads.
struct WorkBlock {
  std::size_t row = 0;
  std::int64_t item = 0;
  double cost = 0;
};
using WorkLane = std::vector<WorkBlock>;

// Above: each request as a bar of its keys, cut where the plan cuts it. Below: the same items on
// the device's threads, each taken by the first that is free, in the plan's order.
std::string WorkPicture(std::string_view title, const std::vector<WorkRow>& rows,
                        const std::vector<WorkLane>& lanes, std::int64_t kv_heads);

// Items in order, each to the lane with the least work so far. REQUIRES: lanes >= 1.
std::vector<WorkLane> AssignToLanes(const std::vector<WorkBlock>& items, std::int64_t lanes);

enum class PageKind { kShared, kCopied, kOwn };
struct PageCell {
  std::int64_t page = 0;
  PageKind kind = PageKind::kOwn;
  double filled = 1;  // Share of the page's rows that are in use.
};
struct PageRow {
  std::string label;
  std::int64_t hidden = 0;  // Pages before `cells`, all shared, not drawn.
  std::vector<PageCell> cells;
};
std::string PagePicture(std::string_view title, const std::vector<PageRow>& rows);

}  // namespace kvilt::cli::report
