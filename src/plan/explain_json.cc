// DescribeJson: the plan for programs. docs/planner.md has the schema.
#include <nlohmann/json.hpp>

#include "kvilt/plan.h"
#include "src/plan/cuda/explain_cuda_json.h"

namespace kvilt {
namespace {

using Json = nlohmann::ordered_json;

Json TileJson(const TileChoice& tile) {
  return {{"name", tile.name},
          {"q_rows", tile.q_rows},
          {"kv_rows", tile.kv_rows},
          {"head_dim_qk", tile.head_dim_qk},
          {"head_dim_vo", tile.head_dim_vo},
          {"kv_heads", tile.kv_heads},
          {"stages", tile.stages},
          {"warps", tile.warps},
          {"warps_rows", tile.warps_rows},
          {"warps_kv", tile.warps_kv},
          {"warps_vo", tile.warps_vo},
          {"producer_warps", tile.producer_warps},
          {"registers", tile.registers},
          {"blocks_per_sm", tile.blocks_per_sm},
          {"copy_bytes", tile.copy_bytes},
          {"bulk_copy", tile.bulk_copy},
          {"fused_merge", tile.fused_merge}};
}

Json SmemJson(const Launch& launch) {
  Json parts = Json::array();
  for (const SmemPart& part : launch.smem) {
    parts.push_back({{"name", part.name}, {"bytes", part.bytes}});
  }
  return {{"total_bytes", launch.smem_bytes()},
          {"limit_bytes", launch.smem_limit_bytes},
          {"parts", parts}};
}

Json LaunchesJson(const Plan& plan) {
  Json launches = Json::array();
  for (std::size_t l = 0; l < plan.launches.size(); ++l) {
    const Launch& launch = plan.launches[l];
    Json json = {{"path", launch.path},
                 {"tile", TileJson(launch.tile)},
                 {"smem", SmemJson(launch)},
                 {"items", launch.items},
                 {"balance", launch.balance}};
    if (plan.spec.kind == DeviceKind::kCuda) plan::cuda::AddLaunchJson(plan, l, json);
    launches.push_back(std::move(json));
  }
  return launches;
}

// Paths, and the tiles of the first launch.
Json RefusedJson(const Plan& plan, const Json& launches) {
  Json refused = Json::array();
  for (const Refusal& refusal : plan.refused) {
    refused.push_back({{"tile", refusal.name}, {"reason", refusal.reason}});
  }
  if (!launches[0].contains("refused")) return refused;
  for (const Json& tile : launches[0]["refused"]) refused.push_back(tile);
  return refused;
}

Json SplitJson(const SplitSummary& split) {
  return {{"mode", Name(split.mode)},
          {"fixed_rows", split.fixed_rows},
          {"items", split.items},
          {"max_splits", split.max_splits},
          {"merged_rows", split.merged_rows},
          {"cascade_items", split.cascade_items},
          {"balance", split.balance}};
}

Json ItemsJson(const Plan& plan) {
  Json items = Json::array();
  for (const WorkItemInfo& item : WorkItems(plan)) {
    items.push_back({{"item", item.item},
                     {"request", item.request},
                     {"launch", item.launch},
                     {"block", item.block},
                     {"rows", {item.row_begin, item.row_end}},
                     {"heads", {item.head_begin, item.head_end}},
                     {"keys", {item.key_begin, item.key_end}},
                     {"split", item.split},
                     {"partial", item.partial},
                     {"cost", item.cost}});
  }
  return items;
}

Json OperandsJson(const Plan& plan) {
  Json operands = Json::array();
  for (const OperandSignature& operand : plan.signature) {
    operands.push_back({{"operand", operand.operand},
                        {"dtype", Name(operand.dtype)},
                        {"shape", operand.shape},
                        {"stride", operand.stride},
                        {"alignment", operand.alignment}});
  }
  return operands;
}

}  // namespace

std::string DescribeJson(const Plan& plan, DescribeOptions options) {
  const Json launches = LaunchesJson(plan);
  Json json = {{"device", plan.spec.name},
               {"slots", plan.spec.slots},
               {"path", plan.path()},
               {"accuracy", Name(plan.accuracy)},
               {"tile", TileJson(plan.launch().tile)},
               {"smem", SmemJson(plan.launch())},
               {"split", SplitJson(plan.split)},
               {"workspace_bytes", plan.workspace_bytes},
               {"plan_data_bytes", plan.plan_data_bytes()},
               {"kv_bytes", plan.kv_bytes},
               {"flops", plan.flops}};
  json["refused"] = RefusedJson(plan, launches);
  json["launches"] = launches;
  json["copy_widths"] = Json::array();
  for (const CopyWidth& width : plan.copy_widths) {
    json["copy_widths"].push_back({{"operand", width.operand}, {"bytes", width.bytes}});
  }
  json["q_heads"] = plan.q_heads;
  json["kv_heads"] = plan.kv_heads;
  json["head_dim_qk"] = plan.head_dim_qk;
  json["head_dim_vo"] = plan.head_dim_vo;
  json["q_len"] = plan.q_len;
  json["kv_len"] = plan.kv_len;
  json["lse_base"] = plan.lse_base == LseBase::kTwo ? "two" : "natural";
  json["lse_has_sink"] = plan.lse_has_sink;
  if (options.explain) json["operands"] = OperandsJson(plan);
  if (options.items) json["items"] = ItemsJson(plan);
  // Names come from the caller and need not be UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace kvilt
