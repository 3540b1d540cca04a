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

}  // namespace kvilt::api
