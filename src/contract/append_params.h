// Operands of one append (rows into a cache) and of one dequantize (a cache into rows), flattened.
// Both name tokens by slot: page * page_size + entry; in a ragged cache the row of the total axis.
#pragma once

#include "attention_params.h"

namespace kvilt::contract {

// Dense rows [tokens, kv_heads, head_dim] in kF32, kBF16 or kF16; strides in bytes.
struct RowParams {
  u8* data = nullptr;  // Null: this side is left out (dequantize only).
  i32 format = 0;      // Format
  i64 token_stride = 0;
  i64 head_stride = 0;
};

struct AppendParams {
  RowParams k_rows;  // Read.
  RowParams v_rows;
  SideParams k;  // Written: data and scales point to writable memory.
  SideParams v;
  i64 tokens = 0;
  i64 kv_heads = 0;
  i64 page_size = 0;           // Ragged: the rows of the total axis.
  const i64* slots = nullptr;  // [tokens]; -1 = skip. All others in range, none twice.
  i32 four_over_six = 0;
};

struct DequantizeParams {
  RowParams k_rows;  // Written.
  RowParams v_rows;
  SideParams k;  // Read.
  SideParams v;
  i64 tokens = 0;
  i64 kv_heads = 0;
  i64 page_size = 0;
  const i64* slots = nullptr;  // [tokens], in range.
};

}  // namespace kvilt::contract
