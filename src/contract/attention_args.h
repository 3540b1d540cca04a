// What one launch of an attention or merge kernel gets, by value, and what it keeps about the rows
// and keys of a tile. Every pointer is one of the device.
#pragma once

#include "attention_params.h"
#include "tile_shape.h"
#include "work_item.h"

namespace kvilt::contract {

// Segments of a request on a GPU; kernels get them by value.
inline constexpr i32 kMaxSegments = 8;

// Bits of a plan's error word.
enum class DeviceError : u32 {
  kAbsentPage = 1,  // A page id outside [0, pages): its keys were left out.
};

struct AttentionArgs {
  const u8* plan = nullptr;  // PlanHeader and its arrays.
  u8* workspace = nullptr;
  u32* error = nullptr;  // The plan's error word.
  i32 launch = 0;        // Index of LaunchInfo.
  i32 pad = 0;
  // [batch][segments]: first table entry of each request (kRagged: its first row), 0 if shared.
  const i64* table_begins = nullptr;
  AttentionParams params;  // Its `segments` is not read:
  SegmentParams segments[kMaxSegments];
};
// The limit of kernel arguments on every arch and driver.
static_assert(sizeof(AttentionArgs) <= 4096);

// Threads of a block of the merge kernel.
inline constexpr i32 kMergeThreads = 128;

// One row of a tile: a query row of one query head. Keys count from the item's first.
struct TileRow {
  i32 block = -1;  // RowBlock; -1: no row, the tile is not full.
  i32 split = 0;
  i32 vector = 0;  // In the block.
  i32 q_head = 0;
  i32 q_row = 0;                   // In q, out, lse.
  i32 visible_begin = -(1 << 30);  // Without a row: everything, so that whole tiles stay whole.
  i32 visible_end = 1 << 30;
  i32 anchor = 0;  // ALiBi counts from this key,
  float slope = 0;
  float q_scale = 1;   // 2^e: q = operand * q_scale.
  i32 mask_begin = 0;  // kCustom, kTree: keys from here on have bits,
  i64 mask_bit = 0;    // key 0's (were it one of them) would be this one of all requests' bits.
};
static_assert(sizeof(TileRow) == kTileRowBytes);

// Where a key lies in its cache.
struct KeyPlace {
  i32 page =
      0;  // kNoKey: beyond the stage's end, or no row sees it; kAbsentKey: its page does not exist.
  i32 entry = 0;
};
inline constexpr i32 kAbsentKey = -1;
inline constexpr i32 kNoKey = -2;
static_assert(sizeof(KeyPlace) == kKeyPlaceBytes);

}  // namespace kvilt::contract
