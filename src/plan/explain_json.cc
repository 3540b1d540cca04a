// DescribeJson: the plan for programs. docs/planner.md has the schema.
#include <nlohmann/json.hpp>

#include "kvilt/plan.h"

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
          {"warps", tile.warps}};
}

Json SmemJson(const Plan& plan) {
  Json parts = Json::array();
  std::int64_t total = 0;
  for (const SmemPart& part : plan.launch().smem) {
    parts.push_back({{"name", part.name}, {"bytes", part.bytes}});
    total += part.bytes;
  }
  return {
      {"total_bytes", total}, {"limit_bytes", plan.launch().smem_limit_bytes}, {"parts", parts}};
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
                     {"rows", {item.row_begin, item.row_end}},
                     {"heads", {item.head_begin, item.head_end}},
                     {"keys", {item.key_begin, item.key_end}},
                     {"split", item.split},
                     {"partial", item.partial}});
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
  Json json = {{"device", plan.spec.name},
               {"slots", plan.spec.slots},
               {"path", plan.path()},
               {"accuracy", Name(plan.accuracy)},
               {"tile", TileJson(plan.launch().tile)},
               {"smem", SmemJson(plan)},
               {"split", SplitJson(plan.split)},
               {"workspace_bytes", plan.workspace_bytes},
               {"plan_data_bytes", plan.plan_data_bytes()},
               {"kv_bytes", plan.kv_bytes},
               {"flops", plan.flops}};
  json["refused"] = Json::array();
  for (const Refusal& refusal : plan.refused) {
    json["refused"].push_back({{"tile", refusal.name}, {"reason", refusal.reason}});
  }
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
