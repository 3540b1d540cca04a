// The work and merge lists: what the planner writes and every backend reads.
//
// One buffer: PlanHeader, then the arrays it locates. Only offsets, so it can be copied anywhere.
//
//   RequestInfo[batch]           where a request's rows and masks are, its lengths
//   i64 segment_begin[batch][segments + 1]   absolute first key of each segment of a request
//   RowBlock[blocks]             consecutive query rows of one request that are split alike
//   WorkSpan[spans]              (row block, split) pairs; an item owns a run of them
//   WorkItem[items]              KV heads x keys x row blocks: one thread's or block's work
//   MergeItem[merges]            rows to stitch (or, with no split at all, to write as empty)
//
// A work item covers keys [key_begin, key_end), absolute in its request(s), possibly across
// segments, for query rows of one row block; or, when several requests share a segment, of several
// row blocks whose shared segment begins at the same absolute key.
#pragma once

#include "softmax.h"
#include "types.h"

namespace kvilt::contract {

inline constexpr u32 kPlanMagic = 0x4B564C54;  // "KVLT"
inline constexpr u32 kPlanVersion = 1;

// What runs the items. Values are stable: they are part of the plan data.
enum class PathId : i32 {
  kCpuF32 = 0,         // Highway body: everything decoded to f32.
  kCpuAvx512Bf16 = 1,  // Island: operands exact in bf16, dot products by vdpbf16ps.
};

struct PlanHeader {
  u32 magic = kPlanMagic;
  u32 version = kPlanVersion;
  i32 path = 0;      // PathId
  i32 accuracy = 0;  // kvilt::Accuracy
  i32 batch = 0;
  i32 segments = 0;
  i32 q_heads = 0;
  i32 kv_heads = 0;
  i32 head_dim_qk = 0;
  i32 head_dim_vo = 0;
  i32 blocks = 0;
  i32 spans = 0;
  i32 items = 0;
  i32 merges = 0;
  i64 partial_rows = 0;  // Rows of the workspace, see PartialLayout.
  // Byte offsets from the header, each aligned to 16.
  i64 requests_offset = 0;
  i64 segment_begin_offset = 0;
  i64 blocks_offset = 0;
  i64 spans_offset = 0;
  i64 items_offset = 0;
  i64 merges_offset = 0;
  i64 total_bytes = 0;
};

struct RequestInfo {
  i64 q_row_begin = 0;  // In q, out, lse.
  i64 q_len = 0;
  i64 kv_len = 0;
  i64 mask_byte_begin = 0;     // kCustom, kTree: first byte in mask_bits.
  i64 key_position_begin = 0;  // First entry in rope key positions.
};

struct RowBlock {
  i32 request = 0;
  i32 splits = 0;     // 0: no key is visible to any row; 1: the item writes out and lse itself.
  i64 row_begin = 0;  // In the request.
  i64 row_count = 0;
  i64 partial_row = -1;  // With splits > 1: first workspace row, see PartialRow.
};

struct WorkSpan {
  i32 block = 0;
  i32 split = 0;
};

struct WorkItem {
  i32 head_begin = 0;  // KV heads.
  i32 head_count = 0;
  i32 span_begin = 0;
  i32 span_count = 0;
  i64 key_begin = 0;  // Absolute.
  i64 key_end = 0;
  i64 cost = 0;  // The planner's units; items are stored in descending cost.
};

struct MergeItem {
  i32 block = 0;
  i32 pad = 0;
  i64 row_begin = 0;  // Within the block.
  i64 row_count = 0;
};

// The workspace: partial rows, split-major within a row block. A partial row holds for each query
// head an unnormalised output (V global applied) and its softmax state.
constexpr i64 PartialRow(const RowBlock& block, i64 split, i64 row_in_block) {
  return block.partial_row + split * block.row_count + row_in_block;
}

struct PartialLayout {
  i64 rows = 0;
  i64 q_heads = 0;
  i64 head_dim_vo = 0;

  // f32 [rows][q_heads][head_dim_vo]
  constexpr i64 OutIndex(i64 row, i64 head) const { return (row * q_heads + head) * head_dim_vo; }
  // f32 [rows][q_heads][kStateFloats] (softmax.h), behind the outputs.
  constexpr i64 StateByteOffset() const {
    return RoundUp<i64>(rows * q_heads * head_dim_vo * 4, 256);
  }
  constexpr i64 StateIndex(i64 row, i64 head) const {
    return (row * q_heads + head) * kStateFloats;
  }
  constexpr i64 Bytes() const {
    return rows == 0 ? 0 : RoundUp<i64>(StateByteOffset() + rows * q_heads * kStateFloats * 4, 256);
  }
};

}  // namespace kvilt::contract
