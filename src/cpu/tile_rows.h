// Where the keys of a tile lie: from (segment, request, token) to addresses, through page tables.
#pragma once

#include "src/contract/attention_params.h"
#include "src/cpu/attention_body.h"

namespace kvilt::cpu {

// Lane t of the tile whose lane 0 is key `base`. Addresses are those of KV head 0.
struct TileRows {
  i64 base = 0;
  i64 segment = 0;
  u64 present = 0;  // Lanes that lie in the segment and in a page that exists.
  u64 absent = 0;   // Lanes of the segment whose page id is outside [0, pages).
  i64 first_absent_page = -1;
  const u8* k[kTileKeys];
  const u8* v[kTileKeys];
  const u8* k_scales[kTileKeys];
  const u8* v_scales[kTileKeys];  // interleaved4: the first scale of the (page, head) view.
  i64 token_in_page[kTileKeys];   // Filled for interleaved4 only.
};

// Keys [key_begin, key_end), inside one tile, of a segment that begins at absolute key
// `segment_key`; `table_row` is the request, or 0 for a shared segment.
void LocateTile(const contract::SegmentParams& segment, i64 table_row, i64 segment_key,
                i64 key_begin, i64 key_end, TileRows& tile);

// The row addresses of one KV head; lanes outside `lanes` point to zeros.
struct HeadRows {
  const u8* rows[kTileKeys];
  const u8* scales[kTileKeys];
};
void KeyRows(const contract::SideParams& k, const TileRows& tile, i64 head, u64 lanes,
             HeadRows& out);
// Scales stay as they lie: not for decoding interleaved4.
void ValueRows(const contract::SideParams& v, const TileRows& tile, i64 head, u64 lanes,
               HeadRows& out);
// Copies the interleaved4 scales of `rows` in linear order to `scratch`, kTileKeys rows of
// head_dim / 16 bytes, and points the lanes there.
void LinearizeScales(const contract::SideParams& v, const TileRows& tile, u64 lanes, u8* scratch,
                     HeadRows& rows);

}  // namespace kvilt::cpu
