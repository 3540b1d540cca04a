#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/inspect/inspection.h"
#include "cli/inspect/side_view.h"

namespace kvilt::cli {
namespace {

using Json = nlohmann::ordered_json;

Json ShapeJson(const std::int64_t* values, int count) {
  return std::vector<std::int64_t>(values, values + count);
}

Json EvidenceJson(const ScaleEvidence& evidence) {
  return {{"linear", evidence.linear},
          {"interleaved4", evidence.interleaved4},
          {"sigmas", evidence.sigmas}};
}

Json ScalesJson(const SideInspection& side) {
  const ScaleStats& scales = side.stats.scales;
  const ScaleOrder& order = side.scale_order;
  Json histogram = Json::object();  // Bytes that occur.
  for (std::size_t byte = 0; byte < scales.histogram.size(); ++byte) {
    if (scales.histogram[byte] > 0) histogram[std::to_string(byte)] = scales.histogram[byte];
  }
  return {{"blocks", scales.blocks},
          {"min", scales.min},
          {"max", scales.max},
          {"at_max", scales.at_max},
          {"zero", scales.zero},
          {"flushed", scales.flushed},
          {"nan", scales.nan},
          {"negative", scales.negative},
          {"histogram", histogram},
          {"declared_order",
           side.side.scale_layout == ScaleLayout::kLinear ? "linear" : "interleaved4"},
          {"order",
           {{"verdict", Name(order.verdict)},
            {"decided_by", order.decided_by},
            {"channels", EvidenceJson(order.channels)},
            {"tokens", EvidenceJson(order.tokens)},
            {"groups", order.groups},
            {"needs_sigmas", kVerdictSigmas},
            {"needs_gap", kVerdictGap}}}};
}

Json SideJson(const SideInspection& side) {
  const TensorView& data = side.side.data;
  const DecodeScale& global = side.side.global;
  Json json = {{"dtype", Name(data.dtype)},
               {"layout", side.side.layout == KvLayout::kNHD ? "NHD" : "HND"},
               {"shape", ShapeJson(data.shape, data.rank)},
               {"strides", ShapeJson(data.stride, data.rank)},
               {"head_dim", SideView(side.side).head_dim()}};
  if (global.array == nullptr) {
    json["global"] = global.value;
  } else {
    json["global"] = std::vector<float>(global.array, global.array + global.array_size);
  }
  json["elements"] = side.stats.elements;
  json["zero"] = side.stats.zero;
  json["nan"] = side.stats.nan;
  json["infinite"] = side.stats.infinite;
  json["at_clip"] = side.stats.at_max;
  json["heads"] = Json::array();
  for (const HeadMagnitude& head : side.stats.heads) {
    json["heads"].push_back({{"max_abs", head.max_abs}, {"rms", head.rms}});
  }
  if (data.dtype == DType::kNVFP4) json["scales"] = ScalesJson(side);
  return json;
}

Json CacheJson(const CacheInspection& cache) {
  const CacheRows& rows = cache.rows;
  Json json = {{"kind", cache.paged ? "paged" : "ragged"},
               {"requests", rows.lengths.size()},
               {"tokens", rows.tokens},
               {"lengths", rows.lengths},
               {"bytes_per_token", cache.bytes_per_token}};
  if (cache.paged) {
    json["page_size"] = rows.page_size;
    json["pages"] = rows.pages;
    json["pages_used"] = rows.pages_used;
    json["pages_shared"] = rows.pages_shared;
  }
  if (!cache.owners.empty()) json["owners"] = cache.owners;
  for (const SideInspection& side : cache.sides) json[side.name] = SideJson(side);
  return json;
}

}  // namespace

std::string ToJson(const Inspection& inspection) {
  Json json = {{"file", inspection.path}};
  json["cache"] = inspection.cache ? CacheJson(*inspection.cache) : Json();
  json["problems"] = inspection.problems;
  json["tensors"] = Json::array();
  for (const auto& [name, view] : inspection.tensors) {
    json["tensors"].push_back({{"name", name},
                               {"dtype", core::SafetensorsName(view.dtype)},
                               {"shape", ShapeJson(view.shape, view.rank)}});
  }
  json["metadata"] = inspection.metadata;
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace kvilt::cli
