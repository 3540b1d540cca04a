// MakePlan: validate, choose paths and tiles, cut, lay out. One way, no back and forth.
#include "src/plan/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <new>
#include <stdexcept>

#include "src/core/check.h"
#include "src/plan/cost_model.h"
#include "src/plan/cuda/cost.h"
#include "src/plan/cuda/limits.h"
#include "src/plan/paths.h"
#include "src/plan/signature.h"
#include "src/plan/tensor_check.h"
#include "src/plan/tile_select.h"

namespace kvilt::plan {
namespace {

ModelDims DimsOf(const RequestGeometry& geometry) {
  return {geometry.q_heads, geometry.kv_heads, geometry.head_dim_qk, geometry.head_dim_vo};
}

// ---------------------------------------------------------------- CPU

// The runs with their splits chosen. A cascade that does not fit the workspace is given up; the
// splits of plain runs always fit, down to none.
void CutKeys(const AttentionRequest& request, const SplitContext& context,
             std::int64_t rows_per_block, KeyRuns& runs) {
  RunOptions options;
  options.cascade = context.options.allow_cascade && context.options.split != SplitMode::kOff;
  options.cascade_rows = rows_per_block;
  MakeKeyRuns(request, context.geometry, context.blocks, context.costs, context.dims, options,
              runs);
  if (ChooseSplits(context, runs)) return;
  options.cascade = false;
  MakeKeyRuns(request, context.geometry, context.blocks, context.costs, context.dims, options,
              runs);
  KVILT_CHECK(ChooseSplits(context, runs));
}

void DescribeCpuLaunch(const SplitContext& context, const KeyRuns& runs, std::int64_t full_rows,
                       contract::PathId path, Launch& launch) {
  std::int64_t rows = 0;
  int heads = 0;
  for (const KeyRun& run : runs.runs) {
    rows = std::max(rows, run.rows);
    heads = std::max(heads, contract::CeilDiv(context.dims.kv_heads, run.head_groups));
  }
  if (rows == 0) {
    rows = full_rows;
    heads = contract::CeilDiv(context.dims.kv_heads, HeadGroups(rows, context.dims, context.spec));
  }
  DescribeCpuTile(rows, heads, OperandBytes(path), context.dims, context.spec, launch);
}

Status PlanCpu(const AttentionRequest& request, const Plan& plan, PlanScratch& scratch) {
  const RequestGeometry& geometry = scratch.geometry;
  const ModelDims dims = DimsOf(geometry);
  RowTiling tiling;
  tiling.group = dims.group();
  tiling.rows.fill(RowsPerBlock(dims, plan.spec));
  KVILT_RETURN_IF_ERROR(MakeRowBlocks(request, geometry, tiling, scratch.blocks));
  const SplitContext context{geometry,  scratch.blocks.blocks, scratch.costs, dims,
                             plan.spec, scratch.options};
  CutKeys(request, context, tiling.rows[0], scratch.runs);
  std::int64_t bytes = 0;
  const bool countable = PartialBytes(PartialRows(context.blocks, scratch.runs), dims, bytes);
  KVILT_RETURN_IF_ERROR(CheckFixedWorkspace(bytes, countable, scratch.options));
  KVILT_RETURN_IF_ERROR(MakeWorkLists(context, scratch.runs, scratch.work, scratch.lists));

  scratch.launches.resize(1);
  Launch& launch = scratch.launches.front();
  launch.path = plan.path();
  DescribeCpuLaunch(context, scratch.runs, tiling.rows[0], scratch.path, launch);
  scratch.split = Summarize(scratch.lists, context, scratch.work);
  launch.items = scratch.split.items;
  scratch.header = scratch.lists.header;
  launch.balance = scratch.split.balance;
  LaunchRoom room;
  room.rows_per_block = tiling.rows[0];
  room.units = dims.kv_heads;
  room.members = tiling.rows[0];
  // split_kv.cc: fewer than 2 kItemsPerSlot splits for each slot, and head groups beside them.
  room.cuts = static_cast<std::int64_t>(4 * kItemsPerSlot) * plan.spec.slots;
  scratch.room.assign(1, room);
  return {};
}

// ---------------------------------------------------------------- both

// What lengths do not change.
Status FillKind(const AttentionRequest& request, PlanScratch& scratch, Plan& plan) {
  const RequestGeometry& geometry = scratch.geometry;
  plan.accuracy = plan.options.accuracy;
  plan.q_heads = geometry.q_heads;
  plan.kv_heads = geometry.kv_heads;
  plan.head_dim_qk = geometry.head_dim_qk;
  plan.head_dim_vo = geometry.head_dim_vo;
  plan.lse_has_sink = request.sink.defined();
  plan.lse_base = request.lse_base;
  plan.signature = MakeSignature(request);
  plan.copy_widths = MakeCopyWidths(request);
  plan.options_hash = OptionsHash(request);
  Result<PathChoice> path = ChoosePath(request, plan.spec, plan.options);
  if (!path.ok()) return path.status();
  plan.refused = std::move(path->refused);
  plan.launches.assign(1, {});  // Nothing of a plan that stood here before.
  plan.launches.front().path = path->name;
  scratch.path = path->id;
  return {};
}

// Everything that lengths change, into scratch.
Status PlanLengths(const AttentionRequest& request, const Plan& plan, bool keep_tiles,
                   PlanScratch& scratch) {
  scratch.costs.Assign(request, scratch.geometry);
  if (plan.spec.kind == DeviceKind::kCuda) {
    KVILT_RETURN_IF_ERROR(cuda::CheckLimits(request, scratch.geometry));
    KVILT_RETURN_IF_ERROR(
        cuda::PlanCuda(request, DimsOf(scratch.geometry), plan, keep_tiles, scratch));
  } else {
    KVILT_RETURN_IF_ERROR(PlanCpu(request, plan, scratch));
  }
  scratch.header.path = static_cast<int>(scratch.path);
  scratch.header.accuracy = static_cast<int>(plan.options.accuracy);
  return {};
}

// The options that the lists are made by: a capacity's workspace is a limit.
Status EffectiveOptions(const Plan& plan, PlanScratch& scratch) {
  scratch.options = plan.options;
  if (!plan.options.capacity) return {};
  const PlanCapacity& capacity = *plan.options.capacity;
  KVILT_RETURN_IF_ERROR(CheckCapacity(capacity, plan.spec.kind));
  KVILT_RETURN_IF_ERROR(CheckWithin(scratch.geometry, capacity));
  std::int64_t bytes = 0;
  if (!CapacityBytes(capacity, plan.spec, plan.options, bytes)) {
    return Status::Exhausted("options.capacity", "its workspace overflows 64 bits");
  }
  if (plan.options.split == SplitMode::kAuto) {
    scratch.options.workspace_limit_bytes = bytes;
    return {};
  }
  return CheckFixedWorkspace(bytes, true, plan.options);
}

// Room for the lists of a plan: those of the batch, or of every batch within its capacity.
PlanCounts RoomOf(const Plan& plan, const PlanCounts& counts, const PlanScratch& scratch) {
  if (!plan.options.capacity) return counts;
  const bool cuda = plan.spec.kind == DeviceKind::kCuda;
  PlanCounts room = RoomFor(*plan.options.capacity, plan.options, scratch.room,
                            cuda ? cuda::kMergeVectors : plan.options.capacity->q_heads);
  room.launches = counts.launches;
  room.slots = counts.slots;
  return room;
}

std::int64_t KvBytes(bool cuda, const std::vector<Launch>& launches, const PlanScratch& scratch) {
  std::int64_t bytes = 0;
  if (cuda) {  // Counted by launch already.
    for (const Launch& launch : launches) {
      if (!Add(bytes, launch.kv_bytes, bytes)) return std::numeric_limits<std::int64_t>::max();
    }
    return bytes;
  }
  for (const KeyRun& run : scratch.runs.runs) {
    if (!Add(bytes, scratch.costs.Bytes(run.request, run.keys), bytes)) {
      return std::numeric_limits<std::int64_t>::max();
    }
  }
  return bytes;
}

// From scratch to the plan. Memory first: from then on nothing can fail, so the plan is either as
// it was or whole.
void Commit(const AttentionRequest& request, PlanScratch& scratch, Plan& plan) {
  const RequestGeometry& geometry = scratch.geometry;
  const auto batch = static_cast<std::size_t>(geometry.batch);
  const bool cuda = plan.spec.kind == DeviceKind::kCuda;
  const PlanCounts counts = cuda ? scratch.cuda.counts : CountsOf(scratch.lists);
  const PlanCounts room = RoomOf(plan, counts, scratch);
  plan.q_len.reserve(batch);
  plan.kv_len.reserve(batch);
  plan.data.reserve(static_cast<std::size_t>(PlanDataBytes(room)));

  plan.q_len.resize(batch);
  plan.kv_len.resize(batch);
  const std::size_t segments = geometry.segments.size();
  for (std::size_t r = 0; r < batch; ++r) {
    plan.q_len[r] = geometry.q_begin[r + 1] - geometry.q_begin[r];
    plan.kv_len[r] = geometry.segment_begins[r * (segments + 1) + segments];
  }
  UpdateSignature(request, plan.signature);
  std::swap(plan.launches, scratch.launches);
  plan.split = scratch.split;
  const ModelDims dims = DimsOf(geometry);
  const PlanOptions& options = plan.options;
  KVILT_CHECK(options.capacity
                  ? CapacityBytes(*options.capacity, plan.spec, options, plan.workspace_bytes)
                  : VectorBytes(scratch.header.partials, dims, plan.workspace_bytes));
  plan.kv_bytes = KvBytes(cuda, plan.launches, scratch);
  plan.flops = 2 * scratch.blocks.visible_pairs * dims.q_heads * dims.dims();
  plan.positions_hash = PositionsHash(request);
  if (cuda) {
    cuda::WriteLists(geometry, dims, scratch.blocks, scratch.runs, scratch.cuda,
                     OpenPlanData(scratch.header, counts, room, plan.data));
  } else {
    scratch.lists.header = scratch.header;
    EncodePlanData(scratch.lists, room, plan.data);
  }
}

}  // namespace

// kFixed cannot give way, so what it needs must fit.
Status CheckFixedWorkspace(std::int64_t bytes, bool countable, const PlanOptions& options) {
  if (options.split != SplitMode::kFixed) return {};
  const std::int64_t limit = options.workspace_limit_bytes;
  if (countable && (limit < 0 || bytes <= limit)) return {};
  const std::string found = limit < 0 ? "no limit" : fmt::format("{} bytes", limit);
  const std::string needed =
      countable ? fmt::format("{} bytes", bytes) : std::string("more than 2^63 bytes");
  return Status::Exhausted("options.workspace_limit_bytes",
                           fmt::format("{}, fixed_split_rows {} needs {} of workspace", found,
                                       options.fixed_split_rows, needed));
}

Status MakePlanWith(const AttentionRequest& request, const DeviceSpec& spec,
                    const PlanOptions& options, PlanScratch& scratch, Plan& plan) {
  KVILT_RETURN_IF_ERROR(CheckSpec(spec));
  KVILT_RETURN_IF_ERROR(CheckPlanOptions(options));
  KVILT_RETURN_IF_ERROR(Validate(request, spec.kind, options.check_pages, scratch.geometry));
  plan.spec = spec;
  plan.options = options;
  KVILT_RETURN_IF_ERROR(EffectiveOptions(plan, scratch));
  KVILT_RETURN_IF_ERROR(FillKind(request, scratch, plan));
  KVILT_RETURN_IF_ERROR(PlanLengths(request, plan, false, scratch));
  Commit(request, scratch, plan);
  return {};
}

Status Replan(const AttentionRequest& request, PlanScratch& scratch, Plan& plan) {
  KVILT_RETURN_IF_ERROR(
      Validate(request, plan.spec.kind, plan.options.check_pages, scratch.geometry));
  KVILT_RETURN_IF_ERROR(CheckSameKind(request, plan));
  KVILT_RETURN_IF_ERROR(EffectiveOptions(plan, scratch));
  const contract::PlanHeader& before = *ViewPlanData(plan.data).header;
  const contract::u32 generation = before.generation + 1;
  scratch.path = static_cast<contract::PathId>(before.path);
  KVILT_RETURN_IF_ERROR(PlanLengths(request, plan, true, scratch));
  scratch.header.generation = generation;
  Commit(request, scratch, plan);
  return {};
}

}  // namespace kvilt::plan

namespace kvilt {

Result<Plan> MakePlan(const AttentionRequest& request, const DeviceSpec& spec,
                      const PlanOptions& options) {
  try {
    plan::PlanScratch scratch;
    Plan plan;
    KVILT_RETURN_IF_ERROR(plan::MakePlanWith(request, spec, options, scratch, plan));
    return plan;
  } catch (const std::bad_alloc&) {
    return Status::Exhausted("plan", "no host memory");
  } catch (const std::length_error&) {
    return Status::Exhausted("plan", "more entries than a list can hold");
  }
}

}  // namespace kvilt
