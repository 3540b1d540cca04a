#include "src/core/query_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/core/cache_file.h"
#include "src/core/cache_schema.h"
#include "src/core/check.h"

namespace kvilt::core {
namespace {

constexpr std::string_view kMasks[] = {"none", "causal", "custom",
                                       "tree"};  // From MaskMode::kNone.
constexpr std::string_view kPairings[] = {"half", "interleaved"};
constexpr std::string_view kFrequencies[] = {"rotary", "proportional"};
constexpr std::string_view kOrigins[] = {"bottom_right", "row_index"};
constexpr std::string_view kBases[] = {"natural", "two"};

// The stored tensor as the dtype that the metadata declares.
Status ReadQuery(const TensorFile& file, MetadataReader& metadata, AttentionRequest& request) {
  request.q = file.Find("q");
  if (!request.q.defined()) return Status::Invalid("q", "no such tensor in the file");
  if (const auto text = metadata.Text("kvilt.q.dtype")) {
    const std::optional<DType> dtype = ParseDType(*text);
    if (!dtype || !IsCacheDType(*dtype) || *dtype == DType::kE5M2) {
      metadata.Refuse("kvilt.q.dtype",
                      fmt::format("'{}', accepted: f32, bf16, f16, e4m3, nvfp4", *text));
      return metadata.status();
    }
    const bool bytes = request.q.dtype == DType::kU8 && StorageBytes(*dtype) == 1;
    if (request.q.dtype != *dtype && !bytes) {
      return Status::Invalid("q.dtype",
                             fmt::format("{} in the file, but metadata.kvilt.q.dtype says {}",
                                         SafetensorsName(request.q.dtype), *text));
    }
    request.q.dtype = *dtype;
  }
  request.q_scales = file.Find("q_scales");
  if (request.q_scales.defined() && request.q_scales.dtype == DType::kU8) {
    request.q_scales.dtype = DType::kE4M3;
  }
  return Status::Ok();
}

Status ReadIndex(const TensorFile& file, std::string_view name, IndexArray& array) {
  Result<IndexArray> found = file.FindIndex(name);
  if (!found.ok()) return found.status();
  array = *found;
  return Status::Ok();
}

void ReadRope(MetadataReader& metadata, AttentionRequest& request) {
  if (!metadata.Has("kvilt.rope.theta")) {
    for (const char* key : {"kvilt.rope.pairing", "kvilt.rope.frequency", "kvilt.rope.rotary_dim",
                            "kvilt.rope.scale", "kvilt.rope.original_length",
                            "kvilt.rope.low_freq_factor", "kvilt.rope.high_freq_factor"}) {
      if (metadata.Has(key)) metadata.Refuse(key, "given without kvilt.rope.theta");
    }
    return;
  }
  Rope rope;
  metadata.Read("kvilt.rope.theta", rope.theta);
  rope.pairing =
      static_cast<RopePairing>(std::max(0, metadata.Choice("kvilt.rope.pairing", kPairings)));
  rope.frequency = static_cast<RopeFrequency>(
      std::max(0, metadata.Choice("kvilt.rope.frequency", kFrequencies)));
  std::int64_t rotary_dim = 0;
  metadata.Read("kvilt.rope.rotary_dim", rotary_dim);
  if (rotary_dim < 0 || rotary_dim > 65536) {
    metadata.Refuse("kvilt.rope.rotary_dim", fmt::format("{}, expected 0..head_dim", rotary_dim));
    rotary_dim = 0;
  }
  rope.rotary_dim = static_cast<int>(rotary_dim);
  metadata.Read("kvilt.rope.scale", rope.scale);
  if (metadata.Has("kvilt.rope.original_length")) {
    Rope::Llama31 llama31;
    metadata.Read("kvilt.rope.original_length", llama31.original_length);
    metadata.Read("kvilt.rope.low_freq_factor", llama31.low_freq_factor);
    metadata.Read("kvilt.rope.high_freq_factor", llama31.high_freq_factor);
    rope.llama31 = llama31;
  } else {
    for (const char* key : {"kvilt.rope.low_freq_factor", "kvilt.rope.high_freq_factor"}) {
      if (metadata.Has(key)) metadata.Refuse(key, "given without kvilt.rope.original_length");
    }
  }
  request.rope = rope;
}

void ReadOptions(MetadataReader& metadata, AttentionRequest& request) {
  const int mask = metadata.Choice("kvilt.mask", kMasks);
  if (mask >= 0) request.mask = static_cast<MaskMode>(mask + 1);
  metadata.Read("kvilt.window_left", request.window_left);
  metadata.Read("kvilt.window_right", request.window_right);
  if (metadata.Has("kvilt.sm_scale")) {
    float sm_scale = 0;
    metadata.Read("kvilt.sm_scale", sm_scale);
    request.sm_scale = sm_scale;
  }
  metadata.Read("kvilt.q_scale", request.q_scale);
  metadata.Read("kvilt.logits_soft_cap", request.logits_soft_cap);
  metadata.Read("kvilt.bias_before_cap", request.bias_before_cap);
  const int base = metadata.Choice("kvilt.lse_base", kBases);
  if (base >= 0) request.lse_base = static_cast<LseBase>(base);
  ReadRope(metadata, request);
}

}  // namespace

Result<QueryFile> QueryOf(const TensorFile& file) {
  // Tensors alone, without a word of the schema, need no version of it.
  const auto& keys = file.metadata();
  if (std::any_of(keys.begin(), keys.end(),
                  [](const auto& entry) { return entry.first.starts_with(kPrefix); })) {
    KVILT_RETURN_IF_ERROR(CheckSchema(keys));
  }
  QueryFile query;
  AttentionRequest& request = query.request;
  MetadataReader metadata(file.metadata());
  KVILT_RETURN_IF_ERROR(ReadQuery(file, metadata, request));
  ReadOptions(metadata, request);
  KVILT_RETURN_IF_ERROR(ReadIndex(file, "q_indptr", request.q_indptr));
  KVILT_RETURN_IF_ERROR(ReadIndex(file, "q_positions", request.q_positions));
  KVILT_RETURN_IF_ERROR(ReadIndex(file, "mask_indptr", request.mask_indptr));
  request.mask_bits = file.Find("mask_bits");
  request.sink = file.Find("sink");
  if (!request.q_indptr.defined()) {
    query.default_indptr = {0, request.q.shape[0]};
    request.q_indptr = std::span<const std::int64_t>(query.default_indptr);
  }
  if (const TensorView slopes = file.Find("alibi_slopes"); slopes.defined()) {
    Alibi alibi;
    alibi.slopes = slopes;
    alibi.origin =
        static_cast<AlibiOrigin>(std::max(0, metadata.Choice("kvilt.alibi_origin", kOrigins)));
    request.alibi = alibi;
  } else if (metadata.Has("kvilt.alibi_origin")) {
    metadata.Refuse("kvilt.alibi_origin", "given without the tensor alibi_slopes");
  }
  IndexArray key_positions;
  KVILT_RETURN_IF_ERROR(ReadIndex(file, "key_positions", key_positions));
  if (key_positions.defined() && !request.rope) {
    return Status::Invalid("key_positions", "given without metadata.kvilt.rope.theta");
  }
  if (request.rope) request.rope->key_positions = key_positions;
  KVILT_RETURN_IF_ERROR(metadata.status());
  return query;
}

}  // namespace kvilt::core
