#include "src/plan/cuda/describe.h"

#include <algorithm>
#include <limits>

#include "src/plan/cuda/cost.h"
#include "src/plan/tensor_check.h"

namespace kvilt::plan::cuda {
namespace {

using contract::SmemPart;
using contract::TileShape;

void DescribeTile(const TileShape& tile, TileChoice& out) {
  out.name = TileName(tile);
  out.q_rows = tile.q_rows;
  out.kv_rows = tile.kv_rows;
  out.head_dim_qk = tile.head_dim_qk;
  out.head_dim_vo = tile.head_dim_vo;
  out.kv_heads = tile.kv_heads;
  out.stages = std::max(tile.stages, tile.operand_stages);
  out.warps = contract::ConsumerWarps(tile);
  out.warps_rows = tile.warps_rows;
  out.warps_kv = tile.warps_kv;
  out.warps_vo = tile.warps_vo;
  out.producer_warps = tile.producer_warps;
  out.registers = RegistersOf(tile);
  out.blocks_per_sm = tile.blocks_per_sm;
  out.copy_bytes = tile.copy_bytes;
  out.bulk_copy = tile.bulk_copy != 0;
  out.fused_merge = tile.fused_merge != 0;
}

void DescribeSmem(const TileShape& tile, std::vector<kvilt::SmemPart>& parts) {
  parts.clear();
  for (int p = 0; p < static_cast<int>(SmemPart::kPadding); ++p) {
    const auto part = static_cast<SmemPart>(p);
    const int bytes = contract::SmemPartBytes(tile, part);
    if (bytes > 0) parts.push_back({std::string(SmemPartName(part)), bytes});
  }
  const int padding = contract::SmemPaddingBytes(tile);
  if (padding > 0) parts.push_back({std::string(SmemPartName(SmemPart::kPadding)), padding});
}

void DescribeWork(const TileQuery& query, TileWork& work) {
  work = {query.rows,      query.blocks,      query.keys,
          query.one_head,  query.copy_bytes,  query.page_copy_bytes,
          query.page_size, query.whole_heads, query.whole_pages};
}

// What the items of a launch read and compute.
struct LaunchWork {
  std::int64_t bytes = 0;  // KV; and without what row blocks of one request read again, which L2
  std::int64_t once = 0;   // may serve. Their keys come in order.
  double flops = 0;
};
LaunchWork WorkOf(const CudaContext& context, const KeyRuns& runs, const KeyCosts& costs,
                  const LaunchDraft& launch) {
  LaunchWork work;
  const double row_key_flops = 2.0 * context.dims.q_heads * context.dims.dims();
  int request = -1;
  contract::i64 end = 0;
  for (const int r : launch.runs) {
    const KeyRun& run = runs.runs[static_cast<std::size_t>(r)];
    if (run.request != request || run.member_count > 1) end = 0;
    request = run.request;
    const std::int64_t all = costs.Bytes(run.request, run.keys);
    if (!Add(work.bytes, all, work.bytes)) work.bytes = std::numeric_limits<std::int64_t>::max();
    if (end <= run.keys.begin) {
      work.once += all;
    } else if (end < run.keys.end) {
      work.once += costs.Bytes(run.request, {end, run.keys.end});
    }
    end = std::max(end, run.keys.end);
    work.flops += row_key_flops * static_cast<double>(run.rows) *
                  static_cast<double>(run.keys.end - run.keys.begin);
  }
  return work;
}

// What no schedule of this launch could beat: its keys once at the data sheet's rate, or its
// multiply-adds at the peak of the units that its kernel uses.
double RooflineUs(const CudaContext& context, const LaunchWork& work, const LaunchDraft& launch) {
  const bool wgmma = launch.tile.family == static_cast<int>(contract::KernelFamily::kPrefillWgmma);
  const double per_clock =
      wgmma ? context.spec.wgmma_flops_per_clock : context.spec.mma_flops_per_clock;
  const double memory = static_cast<double>(work.once) / (context.spec.read_gb_per_s * 1e3);
  const double compute =
      work.flops / (per_clock * context.spec.clock_ghz * 1e3 * context.spec.slots);
  return std::max(memory, compute);
}

}  // namespace

std::string_view SmemPartName(SmemPart part) {
  switch (part) {
    case SmemPart::kQ:
      return "q";
    case SmemPart::kKOperand:
      return "k_operand";
    case SmemPart::kVOperand:
      return "v_operand";
    case SmemPart::kK:
      return "k";
    case SmemPart::kV:
      return "v";
    case SmemPart::kKScales:
      return "k_scales";
    case SmemPart::kVScales:
      return "v_scales";
    case SmemPart::kReduce:
      return "reduce";
    case SmemPart::kState:
      return "state";
    case SmemPart::kRows:
      return "rows";
    case SmemPart::kKeys:
      return "key places";
    case SmemPart::kBarriers:
      return "barriers";
    default:
      return "padding";
  }
}

void DescribeLaunches(const CudaContext& context, const KeyRuns& runs, const KeyCosts& costs,
                      const CudaScratch& scratch, const std::vector<Launch>& before,
                      std::vector<Launch>& launches, SplitSummary& split) {
  const bool same = before.size() == scratch.launch_count && !before.front().tile.name.empty();
  launches.resize(scratch.launch_count);
  double makespans = 0;
  double ideals = 0;
  for (std::size_t l = 0; l < scratch.launch_count; ++l) {
    const LaunchDraft& draft = scratch.launches[l];
    Launch& launch = launches[l];
    if (same) {
      launch = before[l];  // Assignment keeps the memory of strings.
    } else {
      launch.path = PathName(static_cast<contract::KernelFamily>(draft.tile.family));
      DescribeTile(draft.tile, launch.tile);
      DescribeSmem(draft.tile, launch.smem);
      launch.mixed_dtypes = draft.formats == kAnyFormats;
      if (!launch.mixed_dtypes) {
        launch.k_dtype = static_cast<DType>(draft.tile.k_format);
        launch.v_dtype = static_cast<DType>(draft.tile.v_format);
      }
      launch.cascade = draft.cascade;
      DescribeWork(draft.query, launch.work);
    }
    launch.smem_limit_bytes = SmemLimit(draft.tile, context.spec);
    launch.items = draft.items;
    launch.blocks = draft.grid;
    launch.busy_blocks = draft.busy_blocks;
    const LaunchWork work = WorkOf(context, runs, costs, draft);
    launch.kv_bytes = work.bytes;
    const double total = draft.total_cycles;
    launch.balance = total > 0 ? draft.makespan_cycles * draft.grid / total : 1;
    makespans += draft.makespan_cycles;
    ideals += total / draft.grid;
    // A launch without items is there for updates to come and takes no time until then.
    const double run_us = draft.makespan_cycles / (context.spec.clock_ghz * 1e3) + draft.merge_us;
    launch.estimated_us = launch.items > 0 ? kLaunchUs + run_us : 0;
    launch.merge_us = draft.merge_us;
    launch.roofline_us = RooflineUs(context, work, draft);
  }
  split.balance = ideals > 0 ? makespans / ideals : 1;
}

}  // namespace kvilt::plan::cuda
