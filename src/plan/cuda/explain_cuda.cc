#include "src/plan/cuda/explain_cuda.h"

#include <algorithm>
#include <string>

#include "src/plan/cuda/cost.h"
#include "src/plan/cuda/weigh.h"

namespace kvilt::plan::cuda {
namespace {

using contract::TileShape;

std::string DtypeText(const Launch& launch) {
  if (launch.mixed_dtypes) return "K and V of every dtype of the segments";
  return fmt::format("K {}, V {}", Name(launch.k_dtype), Name(launch.v_dtype));
}

std::string RooflineText(double us, double roofline_us) {
  return fmt::format("{} at the roofline ({:.0f} %)", UsText(roofline_us),
                     us > 0 ? 100 * roofline_us / us : 0);
}

void AddTile(const Launch& launch, const TileShape& tile, ExplainText& text) {
  text.Line("  rows", "{} (query rows times group) x {} keys a stage; head dims {}/{}; {} a block",
            tile.q_rows, tile.kv_rows, tile.head_dim_qk, tile.head_dim_vo,
            CountText(tile.kv_heads, "KV head"));
  text.Line("  warps", "{} compute = {} KV heads x {} rows x {} keys x {} output dims{}",
            launch.tile.warps, tile.kv_heads, tile.warps_rows, tile.warps_kv, tile.warps_vo,
            tile.producer_warps > 0 ? fmt::format("; {} more fetch", tile.producer_warps)
                                    : std::string("; they fetch for themselves"));
  text.Line("  registers", "{} of {} that a computing thread has; {} per SM", RegistersNeeded(tile),
            RegistersOf(tile), CountText(tile.blocks_per_sm, "block"));
  text.Line("  copies", "{}",
            tile.bulk_copy
                ? std::string("bulk, a stretch of a page each")
                : fmt::format("asynchronous, {} each", CountText(tile.copy_bytes, "byte")));
  std::string stages = CountText(tile.stages, "stage") + " as stored";
  if (tile.stages == 0) stages = "no ring";
  if (tile.operand_stages > 0) {
    stages += fmt::format(", {} of 16-bit operands", CountText(tile.operand_stages, "stage"));
  }
  text.Line("  ring", "{}", stages);
}

void AddSmem(const Launch& launch, ExplainText& text) {
  text.Line("  smem", "{} of {} bytes of a block", launch.smem_bytes(), launch.smem_limit_bytes);
  for (const SmemPart& part : launch.smem) text.Line("", "{:<10}{:>8}", part.name, part.bytes);
}

// Schedule first, then what bounds it.
void AddTime(const Plan& plan, std::size_t l, ExplainText& text) {
  const Launch& launch = plan.launches[l];
  text.Line("  work", "{} on {} of {} blocks, balance {:.3f}; reads {} of KV",
            CountText(launch.items, "item"), launch.busy_blocks, launch.blocks, launch.balance,
            BytesText(launch.kv_bytes));
  text.Line("  time", "{} = launch {:.1f} + busiest block {:.1f} + merge {:.1f}; {}",
            UsText(launch.estimated_us), kLaunchUs,
            launch.estimated_us - kLaunchUs - launch.merge_us, launch.merge_us,
            RooflineText(launch.estimated_us, launch.roofline_us));
  const TileEstimate e = EstimateItems(plan, l);
  text.Line("",
            "by resource: memory {:.1f}, issue {:.1f}, mma {:.1f}, copies {:.1f}, merge {:.1f} us",
            e.memory_us, e.issue_us, e.mma_us, e.copy_us, launch.merge_us);
}

// The first few of each kind; DescribeJson has them all.
void AddPassedOver(const Plan& plan, std::size_t l, ExplainText& text) {
  constexpr std::size_t kFeasibleShown = 8, kRefusedShown = 4;
  const std::vector<PassedOver> list = WeighAgain(plan, l);
  std::size_t width = 0;
  for (const PassedOver& tile : list) width = std::max(width, tile.name.size());
  const auto feasible = std::count_if(list.begin(), list.end(), [](const PassedOver& tile) {
    return tile.reason == TileReason::kFeasible;
  });
  text.Line("passed over", "{} that would run, {} that would not", CountText(feasible, "tile"),
            static_cast<std::ptrdiff_t>(list.size()) - feasible);
  for (std::size_t begin = 0; begin < list.size();) {
    std::size_t end = begin;
    while (end < list.size() && list[end].reason == list[begin].reason) ++end;
    const bool runs = list[begin].reason == TileReason::kFeasible;
    const std::size_t shown = std::min(end, begin + (runs ? kFeasibleShown : kRefusedShown));
    for (std::size_t i = begin; i < shown; ++i) {
      text.Line("", "{:<{}}  {}", list[i].name, width, list[i].text);
    }
    if (shown < end) {
      text.Line("", "... {} more {}", end - shown,
                runs ? "up to " + UsText(list[end - 1].us)
                     : fmt::format("for {}", ReasonName(list[begin].reason)));
    }
    begin = end;
  }
}

}  // namespace

void AddLaunchSummary(const Plan& plan, ExplainText& text) {
  double us = 0, roofline_us = 0;
  for (const Launch& launch : plan.launches) {
    text.Line(&launch == plan.launches.data() ? "tile" : "", "{}{}{}", launch.tile.name,
              launch.cascade ? ", for shared segments" : "",
              launch.items == 0 ? ", without items now" : "");
    us += launch.estimated_us;
    roofline_us += launch.roofline_us;
  }
  text.Line("time", "{} by the model, {}", UsText(us), RooflineText(us, roofline_us));
}

void AddLaunchReasons(const Plan& plan, ExplainText& text) {
  for (std::size_t l = 0; l < plan.launches.size(); ++l) {
    const Launch& launch = plan.launches[l];
    text.Blank();
    text.Line(fmt::format("launch {}", l + 1), "{}, {}{}", launch.path, DtypeText(launch),
              launch.cascade ? ", shared segments for several requests" : "");
    text.Line("  tile", "{}", launch.tile.name);
    AddTile(launch, TileOf(plan, l), text);
    AddSmem(launch, text);
    AddTime(plan, l, text);
    AddPassedOver(plan, l, text);
  }
}

}  // namespace kvilt::plan::cuda
