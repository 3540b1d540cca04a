// Refusals of written memory that meets other operands of the same call.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "kvilt/kv_cache.h"
#include "kvilt/status.h"
#include "src/core/check.h"
#include "src/plan/tensor_check.h"

namespace kvilt::api {

inline Status CheckApart(const TensorView& written, std::string_view name, const TensorView& other,
                         std::string_view other_name) {
  if (!written.defined() || !other.defined() || !plan::MayOverlap(written, other)) return {};
  return Status::Invalid(std::string(name),
                         fmt::format("overlaps {}, expected memory of its own", other_name));
}

inline TensorView GlobalView(const DecodeScale& global) {
  if (global.array == nullptr) return {};
  return TensorView::Dense(global.array, DType::kF32, {global.array_size}, global.device);
}

// Calls visit(name, tensor) -> Status for the six tensors of a cache, given or not.
template <class Visit>
Status ForEachCacheTensor(const Segment& cache, Visit&& visit) {
  KVILT_RETURN_IF_ERROR(visit("cache.k.data", cache.k().data));
  KVILT_RETURN_IF_ERROR(visit("cache.k.scales", cache.k().scales));
  KVILT_RETURN_IF_ERROR(visit("cache.v.data", cache.v().data));
  KVILT_RETURN_IF_ERROR(visit("cache.v.scales", cache.v().scales));
  KVILT_RETURN_IF_ERROR(visit("cache.k.global.array", GlobalView(cache.k().global)));
  return visit("cache.v.global.array", GlobalView(cache.v().global));
}

// One of the last two of ForEachCacheTensor, which no call writes.
inline bool IsGlobal(std::string_view name) { return name.ends_with(".array"); }

inline TensorView IndexView(const IndexArray& array) {
  if (array.data == nullptr || array.size <= 0) return {};
  return TensorView::Dense(array.data, array.dtype, {array.size}, array.device);
}

// Of a cache that is written: each tensor apart from itself, the others and the multipliers.
inline Status CheckCacheApart(const Segment& cache) {
  return ForEachCacheTensor(cache, [&](std::string_view name, const TensorView& tensor) -> Status {
    if (!tensor.defined() || IsGlobal(name)) return {};
    KVILT_RETURN_IF_ERROR(plan::CheckNoSelfOverlap(tensor, {"", name}));
    return ForEachCacheTensor(cache, [&](std::string_view other, const TensorView& other_tensor) {
      return name == other ? Status() : CheckApart(tensor, name, other_tensor, other);
    });
  });
}

// Written memory apart from the arrays that say where tokens are. REQUIRES: a checked table.
inline Status CheckApartFromTable(const TensorView& written, std::string_view name,
                                  const Segment& cache) {
  const auto apart = [&](const IndexArray& array, std::string_view other) {
    return CheckApart(written, name, IndexView(array), other);
  };
  if (const RaggedKv* ragged = cache.ragged()) return apart(ragged->indptr, "cache.indptr");
  const PageTable& table = cache.paged()->table;
  KVILT_RETURN_IF_ERROR(apart(table.indptr, "cache.table.indptr"));
  KVILT_RETURN_IF_ERROR(apart(table.indices, "cache.table.indices"));
  KVILT_RETURN_IF_ERROR(apart(table.kv_len, "cache.table.kv_len"));
  return apart(table.last_page_len, "cache.table.last_page_len");
}

}  // namespace kvilt::api
