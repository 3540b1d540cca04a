#include "src/plan/cuda/weigh.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/plan/cuda/tile_candidates.h"
#include "src/plan/explain_text.h"
#include "src/plan/plan_data.h"

namespace kvilt::plan::cuda {
namespace {

using contract::KernelFamily;
using contract::TileShape;

// What the planner asked for this launch; with `layout`, how the caches lie too.
TileQuery QueryOf(const Plan& plan, const Launch& launch, const TileShape& tile, bool layout) {
  TileQuery query;
  query.rows = launch.work.rows;
  query.group = plan.q_heads / plan.kv_heads;
  query.kv_heads = plan.kv_heads;
  query.head_dim_qk = plan.head_dim_qk;
  query.head_dim_vo = plan.head_dim_vo;
  query.k_format = launch.mixed_dtypes ? contract::kAnyFormat : static_cast<int>(launch.k_dtype);
  query.v_format = launch.mixed_dtypes ? contract::kAnyFormat : static_cast<int>(launch.v_dtype);
  query.blocks = launch.work.blocks;
  query.keys = launch.work.keys;
  query.family = FamilyOfPath(plan.options.path);
  query.least_q_rows = launch.cascade ? launch.work.rows : 0;
  query.one_head = launch.work.one_head;
  query.q_parts = tile.q_parts;
  query.k_parts = tile.k_parts;
  if (!layout) return query;
  query.copy_bytes = launch.work.copy_bytes;
  query.page_copy_bytes = launch.work.page_copy_bytes;
  query.page_size = launch.work.page_size;
  query.whole_heads = launch.work.whole_heads;
  query.whole_pages = launch.work.whole_pages;
  return query;
}

class Weighing {
 public:
  Weighing(const Plan& plan, std::size_t launch)
      : plan_(plan),
        // Bits must not follow the layout, so kFixed chooses without.
        query_(QueryOf(plan, plan.launches[launch], TileOf(plan, launch),
                       plan.options.split != SplitMode::kFixed)),
        chosen_(TileOf(plan, launch)) {}

  std::vector<PassedOver> Run() {
    ForEachTile(query_, plan_.spec, [&](const TileShape& tile) {
      if (Same(tile, chosen_)) chosen_us_ = Estimate(tile).us;
    });
    ForEachTile(query_, plan_.spec, [&](const TileShape& tile) {
      if (Same(tile, chosen_) || std::find(seen_.begin(), seen_.end(), tile) != seen_.end()) return;
      seen_.push_back(tile);
      Add(tile);
    });
    std::stable_sort(list_.begin(), list_.end(), [](const PassedOver& a, const PassedOver& b) {
      if (a.reason != b.reason) return a.reason < b.reason;
      return a.reason == TileReason::kFeasible ? a.us < b.us : a.short_by < b.short_by;
    });
    return std::move(list_);
  }

 private:
  TileEstimate Estimate(const TileShape& tile) const {
    return EstimateTile(query_, tile, plan_.spec);
  }

  // kFixed sets how the chosen tile copies after the choice.
  static bool Same(TileShape a, const TileShape& b) {
    a.copy_bytes = b.copy_bytes;
    a.bulk_copy = b.bulk_copy;
    return a == b;
  }

  void Add(const TileShape& tile) {
    const TileCheck check = CheckTile(query_, tile, plan_.spec);
    PassedOver& entry = list_.emplace_back();
    entry.name = TileName(tile);
    entry.reason = check.reason;
    if (check.reason != TileReason::kFeasible) {
      entry.short_by = check.need - check.limit;
      entry.text = ReasonText(check, tile, plan_.spec);
      return;
    }
    entry.us = Estimate(tile).us;
    entry.text = WhyNot(tile, entry.us);
  }

  std::string WhyNot(const TileShape& tile, double us) const {
    if (!plan_.options.tile.empty() && TileName(tile) != plan_.options.tile) {
      return fmt::format("options.tile asks for another ({})", UsText(us));
    }
    const auto decode = static_cast<int>(KernelFamily::kDecode);
    if (chosen_.family == decode && tile.family != decode && query_.rows <= kFewRows) {
      return fmt::format("not considered: one decode tile holds all rows ({})", UsText(us));
    }
    const double slower = 100 * (us / chosen_us_ - 1);
    // Never while this file asks what the planner asked.
    if (slower < -0.05)
      return fmt::format("{:.1f} % faster by the model ({})", -slower, UsText(us));
    if (slower < 0.05) return fmt::format("no faster by the model ({})", UsText(us));
    return fmt::format("{:.{}f} % slower by the model ({})", slower, slower < 10 ? 1 : 0,
                       UsText(us));
  }

  const Plan& plan_;
  const TileQuery query_;
  const TileShape& chosen_;
  double chosen_us_ = 0;
  std::vector<TileShape> seen_;
  std::vector<PassedOver> list_;
};

}  // namespace

std::string_view ReasonName(TileReason reason) {
  switch (reason) {
    case TileReason::kFeasible:
      return "nothing";
    case TileReason::kNeedsFeature:
      return "a feature";
    case TileReason::kNoKernel:
      return "a missing kernel";
    case TileReason::kSmem:
      return "shared memory";
    case TileReason::kRegisters:
      return "registers";
    case TileReason::kThreads:
      return "threads";
    case TileReason::kBlocks:
      return "resident blocks";
    case TileReason::kRing:
      return "the ring rule";
    case TileReason::kNotAsked:
      return "what was asked";
  }
  return "unknown";
}

const TileShape& TileOf(const Plan& plan, std::size_t launch) {
  return ViewPlanData(plan.data).launches[launch].tile;
}

std::vector<PassedOver> WeighAgain(const Plan& plan, std::size_t launch) {
  return Weighing(plan, launch).Run();
}

TileEstimate EstimateItems(const Plan& plan, std::size_t launch) {
  const PlanDataView view = ViewPlanData(plan.data);
  const contract::LaunchInfo& info = view.launches[launch];
  const auto begins = view.slot_begins.subspan(static_cast<std::size_t>(info.slot_begin),
                                               static_cast<std::size_t>(info.grid) + 1);
  double key_heads = 0;
  for (int i = begins.front(); i < begins.back(); ++i) {
    const contract::WorkItem& item = view.items[static_cast<std::size_t>(i)];
    key_heads += static_cast<double>(item.key_end - item.key_begin) * item.head_count;
  }
  TileQuery query = QueryOf(plan, plan.launches[launch], info.tile, true);
  query.rows = info.tile.q_rows;  // Each item reads its keys once.
  query.keys = static_cast<std::int64_t>(key_heads / plan.kv_heads);
  return EstimateTile(query, info.tile, plan.spec);
}

}  // namespace kvilt::plan::cuda
