#include <fmt/format.h>

#include "src/core/cache_file.h"
#include "src/core/cache_schema.h"
#include "src/core/check.h"

namespace kvilt::core {
namespace {

TensorView ArrayView(const IndexArray& array) {
  TensorView view = TensorView::Dense(array.data, array.dtype, {array.size}, array.device);
  return view;
}

Status AddSide(const std::string& name, const CacheSide& side, std::vector<NamedTensor>& tensors,
               Metadata& metadata) {
  const std::string key = "kvilt." + name + ".";
  if (!IsCacheDType(side.data.dtype)) {
    return Status::Invalid(name + ".data.dtype",
                           fmt::format("{}, accepted: {}", Name(side.data.dtype), kCacheDTypes));
  }
  tensors.emplace_back(name + ".data", side.data);
  metadata[key + "dtype"] = Name(side.data.dtype);
  metadata[key + "layout"] = kLayouts[static_cast<int>(side.layout)];
  if (side.data.dtype == DType::kNVFP4) {
    tensors.emplace_back(name + ".scales", side.scales);
    metadata[key + "scale_layout"] = kScaleLayouts[static_cast<int>(side.scale_layout)];
    if (side.scale_row_blocks != 0)
      metadata[key + "scale_row_blocks"] = fmt::format("{}", side.scale_row_blocks);
  }
  if (side.global.array == nullptr) {
    metadata[key + "global"] = fmt::format("{}", side.global.value);
  } else {
    tensors.emplace_back(name + ".global",
                         TensorView::Dense(side.global.array, DType::kF32, {side.global.array_size},
                                           side.global.device));
  }
  if (side.global.allow_unusual) metadata[key + "allow_unusual_scale"] = "true";
  return Status::Ok();
}

Status AddTable(const PageTable& table, std::vector<NamedTensor>& tensors) {
  TensorView indices = ArrayView(table.indices);
  if (table.indptr.defined()) {
    tensors.emplace_back("page_table.indptr", ArrayView(table.indptr));
  } else {
    if (table.row_stride < 1 || table.indices.size % table.row_stride != 0) {
      return Status::Invalid("page_table.indices",
                             fmt::format("{} ids in rows of {}, expected whole rows",
                                         table.indices.size, table.row_stride));
    }
    indices = TensorView::Dense(table.indices.data, table.indices.dtype,
                                {table.indices.size / table.row_stride, table.row_stride},
                                table.indices.device);
  }
  tensors.emplace_back("page_table.indices", indices);
  if (table.kv_len.defined()) tensors.emplace_back("page_table.kv_len", ArrayView(table.kv_len));
  if (table.last_page_len.defined())
    tensors.emplace_back("page_table.last_page_len", ArrayView(table.last_page_len));
  return Status::Ok();
}

}  // namespace

Status SaveCacheFile(const std::string& path, const Segment& segment,
                     std::span<const NamedTensor> others, const Metadata& metadata) {
  for (const auto& [key, text] : metadata) {
    if (IsSegmentKey(key)) return Status::Invalid("metadata." + key, "is written from the segment");
  }
  std::vector<NamedTensor> tensors(others.begin(), others.end());
  Metadata all = metadata;
  all["kvilt.version"] = kSchemaVersion;
  all["kvilt.cache"] = kCacheKinds[segment.paged() != nullptr ? 0 : 1];
  if (!segment.owners.empty())
    all["kvilt.owners"] = fmt::format("{}", fmt::join(segment.owners, ","));
  KVILT_RETURN_IF_ERROR(AddSide("k", segment.k(), tensors, all));
  KVILT_RETURN_IF_ERROR(AddSide("v", segment.v(), tensors, all));
  if (const PagedKv* paged = segment.paged()) {
    if (paged->k.data.rank != 4) {
      return Status::Invalid("k.data.rank",
                             fmt::format("{}, expected 4 for a paged cache", paged->k.data.rank));
    }
    all["kvilt.page_size"] = fmt::format("{}", AxesOf(paged->k.data, paged->k.layout).tokens);
    KVILT_RETURN_IF_ERROR(AddTable(paged->table, tensors));
  } else {
    tensors.emplace_back("indptr", ArrayView(segment.ragged()->indptr));
  }
  return WriteSafetensors(path, tensors, all);
}

}  // namespace kvilt::core
