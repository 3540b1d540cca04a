#include "cli/plan_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "cli/report/pictures.h"
#include "cli/report/split_picture.h"
#include "cli/terminal.h"

namespace kvilt::cli {
namespace {

// Rows of one picture; what is beyond is left out, and said so.
constexpr std::size_t kMostRows = 640;
constexpr std::size_t kMostRowsOfRequest = 64;

bool IsCuda(const Plan& plan) { return plan.spec.kind == DeviceKind::kCuda; }

std::string Tip(const WorkItemInfo& item) {
  return fmt::format("item {}: request {}, rows {}..{}, KV heads {}..{}, keys {}..{}, split {}",
                     item.item, item.request, item.row_begin, item.row_end, item.head_begin,
                     item.head_end, item.key_begin, item.key_end, item.split);
}

// Blocks of the grid; threads of the CPU take items as they come.
std::vector<std::size_t> BlocksOf(const Plan& plan, const std::vector<WorkItemInfo>& items) {
  std::vector<std::size_t> blocks;
  std::vector<report::WorkBlock> queue;
  for (const WorkItemInfo& item : items) {
    const auto index = static_cast<std::size_t>(item.item);
    if (index < blocks.size()) continue;
    blocks.push_back(static_cast<std::size_t>(item.block));
    queue.push_back({0, item.item, static_cast<double>(item.cost)});
  }
  if (IsCuda(plan)) return blocks;
  const std::vector<report::WorkLane> lanes = report::AssignToLanes(queue, plan.spec.slots);
  for (std::size_t l = 0; l < lanes.size(); ++l) {
    for (const report::WorkBlock& item : lanes[l]) blocks[static_cast<std::size_t>(item.item)] = l;
  }
  return blocks;
}

class Drawing {
 public:
  Drawing(const Plan& plan, std::string_view title)
      : plan_(plan), items_(WorkItems(plan)), blocks_(BlocksOf(plan, items_)) {
    data_.title = title;
  }

  report::SplitData Take() {
    for (const std::int64_t keys : plan_.kv_len) data_.keys = std::max(data_.keys, keys);
    if (!IsCuda(plan_)) {
      data_.block_word = "thread";
      data_.cost_word = "modelled work, Mflop";
    }
    AddFacts();
    AddRequests();
    AddLaunches();
    return std::move(data_);
  }

 private:
  void AddFacts() {
    const std::string splits = plan_.split.max_splits > 1
                                   ? fmt::format("up to {} splits per row", plan_.split.max_splits)
                                   : "nothing is split";
    data_.facts.push_back(fmt::format("{}, {} {}; split {}: {} work items, {}", plan_.spec.name,
                                      plan_.spec.slots, IsCuda(plan_) ? "SMs" : "threads",
                                      Name(plan_.split.mode), plan_.split.items, splits));
    for (const Launch& launch : plan_.launches) {
      if (!IsCuda(plan_)) continue;
      data_.facts.push_back(fmt::format(
          "{}: {}; {} items on {} of {} blocks, {} by the model", launch.path, launch.tile.name,
          launch.items, launch.busy_blocks, launch.blocks, HumanTime(launch.estimated_us)));
    }
  }

  // Rows by request, first query row and first KV head.
  void AddRequests() {
    using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t>;
    std::map<Key, report::SplitRow> rows;
    for (const WorkItemInfo& item : items_) {
      rows[{item.request, item.row_begin, item.head_begin}].push_back(
          {item.key_begin, item.key_end, blocks_[static_cast<std::size_t>(item.item)], Tip(item)});
    }
    std::vector<std::size_t> count(plan_.kv_len.size(), 0);
    for (const auto& [key, row] : rows) ++count[static_cast<std::size_t>(std::get<0>(key))];
    bool one_head = false;
    std::size_t drawn = 0;
    for (std::size_t r = 0; r < plan_.kv_len.size() && drawn < kMostRows; ++r) {
      report::SplitRequest& request = data_.requests.emplace_back();
      request.label = fmt::format("request {}", r);
      const bool first_only = count[r] > kMostRowsOfRequest;
      const auto id = static_cast<std::int64_t>(r);
      const auto end = rows.lower_bound({id + 1, 0, 0});
      for (auto it = rows.lower_bound({id, 0, 0}); it != end; ++it) {
        if (first_only && std::get<2>(it->first) > 0) continue;
        request.rows.push_back(std::move(it->second));
      }
      one_head = one_head || first_only;
      drawn += request.rows.size();
    }
    if (one_head) {
      data_.facts.emplace_back("Of many query rows, from first to last, only KV head 0 is drawn.");
    }
    if (data_.requests.size() < plan_.kv_len.size()) {
      data_.facts.push_back(fmt::format("The first {} of {} requests are drawn above.",
                                        data_.requests.size(), plan_.kv_len.size()));
    }
  }

  void AddLaunches() {
    for (const Launch& launch : plan_.launches) {
      report::SplitLaunch& lanes = data_.launches.emplace_back();
      lanes.label = IsCuda(plan_) ? fmt::format("Blocks of the grid, {}: balance {:.3f}",
                                                launch.tile.name, launch.balance)
                                  : fmt::format("Threads: balance {:.3f}", launch.balance);
      lanes.blocks.resize(
          static_cast<std::size_t>(IsCuda(plan_) ? launch.blocks : plan_.spec.slots));
    }
    const double unit = IsCuda(plan_) ? plan_.spec.clock_ghz * 1e3 : 0.5e6;
    std::int64_t last = -1;
    for (const WorkItemInfo& item : items_) {
      if (item.item == last) continue;
      last = item.item;
      data_.launches[static_cast<std::size_t>(item.launch)]
          .blocks[blocks_[static_cast<std::size_t>(item.item)]]
          .push_back({static_cast<double>(item.cost) / unit, Tip(item)});
    }
  }

  const Plan& plan_;
  const std::vector<WorkItemInfo> items_;
  const std::vector<std::size_t> blocks_;
  report::SplitData data_;
};

}  // namespace

std::string PlanPicture(const Plan& plan, std::string_view title) {
  return report::SplitPicture(Drawing(plan, title).Take());
}

}  // namespace kvilt::cli
