// Dense rows [tokens, kv_heads, head_dim] of the caller, with strides in bytes.
#pragma once

#include "kvilt/tensor.h"
#include "src/contract/append_params.h"

namespace kvilt::api {

// Null data for a view that is not given. REQUIRES: otherwise rank 3 and a row format.
inline contract::RowParams BindRows(const TensorView& rows) {
  if (!rows.defined()) return {};
  const std::int64_t unit = StorageBytes(rows.dtype);
  return {static_cast<contract::u8*>(rows.data), static_cast<contract::i32>(rows.dtype),
          rows.stride[0] * unit, rows.stride[1] * unit};
}

}  // namespace kvilt::api
