// MakePlan: validate, choose the path, cut, lay out. One way, no back and forth.
#include <fmt/format.h>

#include <algorithm>

#include "kvilt/attention.h"
#include "src/core/check.h"
#include "src/plan/paths.h"
#include "src/plan/row_blocks.h"
#include "src/plan/signature.h"
#include "src/plan/split_kv.h"
#include "src/plan/tile_select.h"
#include "src/plan/validate.h"
#include "src/plan/work_list.h"

namespace kvilt {
namespace {

using plan::KeyRuns;
using plan::ModelDims;
using plan::PlanLists;
using plan::RequestGeometry;
using plan::SplitContext;

ModelDims DimsOf(const RequestGeometry& geometry) {
  return {geometry.q_heads, geometry.kv_heads, geometry.head_dim_qk, geometry.head_dim_vo};
}

// The runs with their splits chosen. A cascade that does not fit the workspace is given up; the
// splits of plain runs always fit, down to none.
KeyRuns CutKeys(const AttentionRequest& request, const SplitContext& context,
                std::int64_t rows_per_block) {
  const bool cascade = context.options.allow_cascade && context.options.split != SplitMode::kOff;
  KeyRuns runs = plan::MakeKeyRuns(request, context.geometry, context.blocks, context.costs,
                                   context.dims, rows_per_block, cascade);
  if (plan::ChooseSplits(context, runs)) return runs;
  runs = plan::MakeKeyRuns(request, context.geometry, context.blocks, context.costs, context.dims,
                           rows_per_block, false);
  KVILT_CHECK(plan::ChooseSplits(context, runs));
  return runs;
}

// kFixed cannot give way, so what it needs must fit.
Status CheckWorkspace(const SplitContext& context, const KeyRuns& runs) {
  if (context.options.split != SplitMode::kFixed) return {};
  const std::int64_t limit = context.options.workspace_limit_bytes;
  std::int64_t bytes = 0;
  const bool countable =
      plan::PartialBytes(plan::PartialRows(context.blocks, runs), context.dims, bytes);
  if (countable && (limit < 0 || bytes <= limit)) return {};
  const std::string found = limit < 0 ? "no limit" : fmt::format("{} bytes", limit);
  const std::string needed =
      countable ? fmt::format("{} bytes", bytes) : std::string("more than 2^63 bytes");
  return Status::Exhausted("options.workspace_limit_bytes",
                           fmt::format("{}, fixed_split_rows {} needs {} of workspace", found,
                                       context.options.fixed_split_rows, needed));
}

void FillTile(Plan& plan, const SplitContext& context, const KeyRuns& runs, std::int64_t full_rows,
              int operand_bytes) {
  std::int64_t rows = 0;
  int heads = 0;
  for (const plan::KeyRun& run : runs.runs) {
    rows = std::max(rows, run.rows);
    heads = std::max(heads, contract::CeilDiv(context.dims.kv_heads, run.head_groups));
  }
  if (rows == 0) {
    rows = full_rows;
    heads = contract::CeilDiv(context.dims.kv_heads,
                              plan::HeadGroups(rows, context.dims, context.spec));
  }
  plan.tile = plan::DescribeTile(plan.path, rows, heads, context.dims);
  plan.smem = plan::WorkingSet(rows, heads, operand_bytes, context.dims);
  plan.smem_limit_bytes = plan::L2Limit(context.spec);
}

void FillRequest(Plan& plan, const AttentionRequest& request, const RequestGeometry& geometry) {
  plan.q_heads = geometry.q_heads;
  plan.kv_heads = geometry.kv_heads;
  plan.head_dim_qk = geometry.head_dim_qk;
  plan.head_dim_vo = geometry.head_dim_vo;
  plan.q_len.reserve(static_cast<std::size_t>(geometry.batch));
  plan.kv_len.reserve(static_cast<std::size_t>(geometry.batch));
  for (std::int64_t r = 0; r < geometry.batch; ++r) {
    plan.q_len.push_back(geometry.q_len(r));
    plan.kv_len.push_back(geometry.kv_len(r));
  }
  plan.lse_has_sink = request.sink.defined();
  plan.lse_base = request.lse_base;
  plan.signature = plan::MakeSignature(request);
  plan.copy_widths = plan::MakeCopyWidths(request);
  plan.options_hash = plan::OptionsHash(request);
  plan.positions_hash = plan::PositionsHash(request);
}

}  // namespace

Result<Plan> MakePlan(const AttentionRequest& request, const DeviceSpec& spec,
                      const PlanOptions& options) {
  KVILT_RETURN_IF_ERROR(plan::CheckSpec(spec));
  KVILT_RETURN_IF_ERROR(plan::CheckPlanOptions(options));
  Result<RequestGeometry> checked = plan::Validate(request, spec.kind, options.check_pages);
  if (!checked.ok()) return checked.status();
  const RequestGeometry& geometry = *checked;
  Result<plan::PathChoice> path = plan::ChoosePath(request, spec, options);
  if (!path.ok()) return path.status();

  const ModelDims dims = DimsOf(geometry);
  const std::int64_t rows_per_block = plan::RowsPerBlock(dims, spec);
  Result<plan::BlockList> blocks = plan::MakeRowBlocks(request, geometry, rows_per_block);
  if (!blocks.ok()) return blocks.status();
  const plan::KeyCosts costs(request, geometry);
  const SplitContext context{geometry, blocks->blocks, costs, dims, spec, options};
  const KeyRuns runs = CutKeys(request, context, rows_per_block);
  KVILT_RETURN_IF_ERROR(CheckWorkspace(context, runs));
  Result<PlanLists> lists = plan::MakeWorkLists(context, runs);
  if (!lists.ok()) return lists.status();

  Plan plan;
  plan.spec = spec;
  plan.options = options;
  plan.path = path->name;
  plan.accuracy = options.accuracy;
  plan.refused = std::move(path->refused);
  FillTile(plan, context, runs, rows_per_block, path->operand_bytes);
  FillRequest(plan, request, geometry);
  plan.split = plan::Summarize(*lists, context);
  lists->header.path = static_cast<int>(path->id);
  lists->header.accuracy = static_cast<int>(options.accuracy);
  KVILT_CHECK(plan::PartialBytes(lists->header.partial_rows, dims, plan.workspace_bytes));
  for (const plan::KeyRun& run : runs.runs) plan.kv_bytes += costs.Bytes(run.request, run.keys);
  plan.flops = 2 * blocks->visible_pairs * dims.q_heads * dims.dims();
  plan.data = plan::EncodePlanData(*lists);
  return plan;
}

}  // namespace kvilt
