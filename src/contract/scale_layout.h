// Where the NVFP4 scale of a token and a block lies inside one (page, head) view [page_size, S],
// S = head_dim / 16. The row is multiplied by the token stride of the scales, the column by 1.
//
//   linear         row = t,                   column = s
//   interleaved4   row = 4 (t/4) + s/(S/4),   column = 4 (s mod S/4) + t mod 4
//
// Source: SEMANTICS section 1. REQUIRES for interleaved4: page_size % 4 == 0, S % 4 == 0.
#pragma once

#include "types.h"

namespace kvilt::contract {

constexpr i64 ScaleRow(bool interleaved4, i64 token, i64 block, i64 row_blocks) {
  return interleaved4 ? RoundDown<i64>(token, 4) + block / (row_blocks / 4) : token;
}

constexpr i64 ScaleColumn(bool interleaved4, i64 token, i64 block, i64 row_blocks) {
  return interleaved4 ? block % (row_blocks / 4) * 4 + token % 4 : block;
}

}  // namespace kvilt::contract
