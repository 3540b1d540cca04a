// The work and merge lists: what the planner writes and every backend reads.
//
// One buffer: PlanHeader, then the arrays it locates. Only offsets, so it can be copied anywhere.
//
//   LaunchInfo[launches]         GPU: a tile and the items that it serves; the CPU has none
//   i32 slot_begins[...]         GPU: of each launch, the first item of each block, and the end
//   RequestInfo[batch]           where a request's rows and masks are, its lengths
//   i64 segment_begin[batch][segments + 1]   absolute first key of each segment of a request
//   RowBlock[blocks]             query rows and heads of one request that are split alike
//   WorkSpan[spans]              (row block, split) pairs; an item owns a run of them
//   WorkItem[items]              KV heads x keys x row blocks: one thread's or block's work
//   MergeItem[merges]            rows to stitch (or, with no split at all, to write as empty)
//
// A work item covers keys [key_begin, key_end), absolute in its request(s), possibly across
// segments, for query rows of one row block; or, when several requests share a segment, of several
// row blocks whose shared segment begins at the same absolute key. Its KV heads are some of those
// of each row block (CPU), or those of `span_count / members` consecutive row blocks (GPU): all
// spans of one member come one after another.
#pragma once

#include "softmax.h"
#include "tile_shape.h"
#include "types.h"

namespace kvilt::contract {

inline constexpr u32 kPlanMagic = 0x4B564C54;  // "KVLT"
inline constexpr u32 kPlanVersion = 2;

// What runs the items. Values are stable: they are part of the plan data.
enum class PathId : i32 {
  kCpuF32 = 0,         // Highway body: everything decoded to f32.
  kCpuAvx512Bf16 = 1,  // Island: operands exact in bf16, dot products by vdpbf16ps.
  kCuda = 2,           // The tiles of the launches say which kernels.
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
  i32 launches = 0;
  i32 slots = 0;       // Entries of slot_begins.
  u32 generation = 0;  // Rises with each update in place.
  i32 pad = 0;
  i64 partials = 0;  // Vectors in the workspace, see PartialLayout.
  // Byte offsets from the header, each aligned to 16.
  i64 launches_offset = 0;
  i64 slots_offset = 0;
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

// One kernel launch of a persistent grid: block i walks items
// [slot_begins[slot_begin + i], slot_begins[slot_begin + i + 1]).
struct LaunchInfo {
  TileShape tile;
  i32 grid = 0;
  i32 slot_begin = 0;
  i32 block_heads = 0;  // KV heads of each row block of its items.
  i32 row_class = 0;    // Of the planner: whose rows it serves.
  i32 cascade = 0;      // 1: shared segments, for several requests.
};

struct RowBlock {
  i32 request = 0;
  i32 splits = 0;  // 0: no key is visible to any row; 1: the item writes out and lse itself.
  i32 q_head_begin = 0;
  i32 q_head_count = 0;
  i64 row_begin = 0;  // In the request.
  i64 row_count = 0;
  i64 partial_begin = -1;  // With splits > 1: its first vector in the workspace.

  // Vectors (one query row of one query head) of each split.
  constexpr i64 vectors() const { return row_count * q_head_count; }
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

// Vectors of a merge item, at most.
inline constexpr i32 kMergeVectors = 4;

struct MergeItem {
  i32 block = 0;
  i32 pad = 0;
  i64 begin = 0;  // Vectors of the block: row * q_head_count + head.
  i64 count = 0;
};

// The workspace: for each vector of each split an unnormalised output (V global applied) and its
// softmax state. Outputs lie split-major, so a split writes one stretch; states lie vector-major,
// so a merge reads one stretch.
struct PartialLayout {
  i64 vectors = 0;
  i64 head_dim_vo = 0;

  // f32 [vectors][head_dim_vo]
  constexpr i64 OutIndex(const RowBlock& block, i64 split, i64 vector) const {
    return (block.partial_begin + split * block.vectors() + vector) * head_dim_vo;
  }
  // f32 [vectors][kStateFloats] (softmax.h), behind the outputs.
  constexpr i64 StateByteOffset() const { return RoundUp<i64>(vectors * head_dim_vo * 4, 256); }
  constexpr i64 StateIndex(const RowBlock& block, i64 split, i64 vector) const {
    return (block.partial_begin + vector * block.splits + split) * kStateFloats;
  }
  constexpr i64 Bytes() const {
    return vectors == 0 ? 0 : RoundUp<i64>(StateByteOffset() + vectors * kStateFloats * 4, 256);
  }
};

}  // namespace kvilt::contract
