// Strides in bytes, and dense rows [tokens, kv_heads, head_dim] of the caller.
#pragma once

#include "kvilt/tensor.h"
#include "src/contract/append_params.h"

namespace kvilt::api {

// 0 where the axis is never stepped along: such a stride is free, and may be too large for bytes.
inline contract::i64 StrideBytes(const TensorView& tensor, int dim) {
  return tensor.shape[dim] > 1 ? tensor.stride[dim] * StorageBytes(tensor.dtype) : 0;
}

// Null data for a view that is not given. REQUIRES: otherwise rank 3 and a row format.
inline contract::RowParams BindRows(const TensorView& rows) {
  if (!rows.defined()) return {};
  return {static_cast<contract::u8*>(rows.data), static_cast<contract::i32>(rows.dtype),
          StrideBytes(rows, 0), StrideBytes(rows, 1)};
}

}  // namespace kvilt::api
