// The memory that a worker needs for one item, carved out of one buffer.
#pragma once

#include "src/contract/softmax.h"
#include "src/cpu/aligned_buffer.h"
#include "src/cpu/item_rows.h"
#include "src/cpu/launch.h"
#include "src/cpu/tile_rows.h"

namespace kvilt::cpu {

// Tiles between a prefetch and its use (see CPU-NOTES: 2, 4 and 8 are equal, 1 is late).
inline constexpr int kTilesAhead = 2;
inline constexpr int kRing = kTilesAhead + 1;

// Running sums are folded into totals at absolute multiples of so many keys, and at segment
// borders. Like terms round the same way every time, so a running f32 sum of n of them drifts by
// about n * 2^-25: 3.4e-4 at 131072 keys before tiles and folds had sums of their own. Now no f32
// sum has more than about 64 terms, totals are double, and errors do not grow with the context.
inline constexpr i64 kFoldKeys = 64 * kTileKeys;

struct ItemSize {
  i64 rows = 0;        // Query rows.
  i64 head_count = 0;  // KV heads.
  bool folds = false;  // The item's keys may touch more than one segment or stretch of kFoldKeys.
};

// What a worker needs for one item. States are [KV head of the item][row][head of the group].
struct ItemScratch {
  ItemRow* rows;
  u64* visible;  // [rows], of the current tile.
  i64* active;   // [rows], indices of rows that see a key of the current tile.
  RowRef* refs;  // [rows * group]
  std::byte* queries;
  float* outputs;
  float* states;          // [..][2]
  double* total_outputs;  // Of what was folded, natural order, V global applied.
  double* total_states;
  std::byte* key_tile;
  std::byte* value_tile;
  float* query_row;
  float* natural;  // Two output rows.
  u8* scale_rows;  // interleaved4
  TileRows* ring;  // [kRing]
  HeadRows* key_rows;
  HeadRows* value_rows;
  float* cosines;  // [kTileKeys][pairs]
  float* sines;
  double* cursor;
};

// Of the rows of spans [span_begin, span_begin + span_count) of an item.
ItemSize SizeOf(const Launch& launch, const contract::WorkItem& item, i64 span_begin,
                i64 span_count);

// States (output, reference, sums) of an item.
i64 StateCount(const Launch& launch, const ItemSize& size);

// Places everything in `base` and returns the bytes used; a null base only counts.
i64 Carve(const Launch& launch, const ItemSize& size, std::byte* base, ItemScratch& s);

}  // namespace kvilt::cpu
