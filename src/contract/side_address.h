// Where the row and the scales of one token and KV head lie in a cache side. Byte offsets, 64-bit.
#pragma once

#include "attention_params.h"
#include "scale_layout.h"

namespace kvilt::contract {

// `entry` is the token's place in its page. Ragged caches are one page: page 0, entry = row.
constexpr i64 DataOffset(const SideParams& side, i64 page, i64 entry, i64 head) {
  return page * side.page_stride + entry * side.token_stride + head * side.head_stride;
}

// Of the scale of block `block` (16 elements) of the row. kNVFP4 only.
constexpr i64 ScaleOffset(const SideParams& side, i64 page, i64 entry, i64 head, i64 block) {
  const bool interleaved4 = side.interleaved4 != 0;
  const i64 row_blocks = side.head_dim / 16;
  return page * side.scale_page_stride +
         ScaleRow(interleaved4, entry, block, row_blocks) * side.scale_token_stride +
         head * side.scale_head_stride + ScaleColumn(interleaved4, entry, block, row_blocks);
}

constexpr float GlobalOf(const SideParams& side, i64 head) {
  if (side.global == nullptr) return side.global_value;
  return side.global[side.global_per_head != 0 ? head : 0];
}

}  // namespace kvilt::contract
