#include "src/cpu/tile_rows.h"

#include "src/contract/scale_layout.h"

namespace kvilt::cpu {
namespace {

using contract::LoadIndex;
using contract::SegmentParams;
using contract::SideParams;
using contract::TableKind;

alignas(64) constexpr u8 kZeroRow[kMaxHeadDim * 4] = {};

// Walks the tokens of one table row in ascending order.
class TokenCursor {
 public:
  TokenCursor(const SegmentParams& segment, i64 table_row, i64 token) : segment_(segment) {
    if (segment.table == static_cast<contract::i32>(TableKind::kRagged)) {
      offset_ = LoadIndex(segment.indptr, segment.indptr_is_i64, table_row) + token;
      size_ = contract::Max<i64>(segment.page_size, 1);
      return;
    }
    first_ = segment.table == static_cast<contract::i32>(TableKind::kCsr)
                 ? LoadIndex(segment.indptr, segment.indptr_is_i64, table_row)
                 : table_row * segment.row_stride;
    size_ = segment.page_size;
    page_ = token / size_;
    offset_ = token % size_;
    LoadPage();
  }
  void Next() {
    if (++offset_ < size_ || segment_.table == static_cast<contract::i32>(TableKind::kRagged)) {
      return;
    }
    offset_ = 0;
    ++page_;
    stale_ = true;
  }
  // Of the current token. Loads a table entry only for a token that is asked for.
  i64 id() {
    if (stale_) LoadPage();
    return id_;
  }
  bool exists() { return id() >= 0 && id_ < pages(); }
  i64 page() const { return page_; }
  i64 offset() const { return offset_; }

 private:
  i64 pages() const {
    return segment_.table == static_cast<contract::i32>(TableKind::kRagged) ? 1 : segment_.pages;
  }
  void LoadPage() {
    id_ = LoadIndex(segment_.indices, segment_.index_is_i64, first_ + page_);
    stale_ = false;
  }

  const SegmentParams& segment_;
  i64 first_ = 0;  // Table entry of page 0.
  i64 size_ = 1;
  i64 page_ = 0;  // Of this table row.
  i64 offset_ = 0;
  i64 id_ = 0;
  bool stale_ = false;
};

const u8* DataAt(const SideParams& side, i64 page, i64 offset) {
  return side.data + page * side.page_stride + offset * side.token_stride;
}
const u8* ScalesAt(const SideParams& side, i64 page, i64 offset) {
  return side.scales + page * side.scale_page_stride +
         (side.interleaved4 ? 0 : offset * side.scale_token_stride);
}

bool HasScales(const SideParams& side) {
  return side.format == static_cast<contract::i32>(contract::Format::kNVFP4);
}

void SideRows(const SideParams& side, const u8* const* data, const u8* const* scale_rows, i64 head,
              u64 lanes, HeadRows& out) {
  const bool scaled = HasScales(side);
  const i64 data_offset = head * side.head_stride;
  const i64 scale_offset = head * side.scale_head_stride;
  for (int t = 0; t < kTileKeys; ++t) {
    const bool in = (lanes >> t & 1) != 0;
    out.rows[t] = in ? data[t] + data_offset : kZeroRow;
    out.scales[t] = in && scaled ? scale_rows[t] + scale_offset : kZeroRow;
  }
}

}  // namespace

const u8* ZeroRow() { return kZeroRow; }

void LocateTile(const SegmentParams& segment, i64 table_row, i64 segment_key, i64 key_begin,
                i64 key_end, TileRows& tile) {
  tile.base = contract::RoundDown<i64>(key_begin, kTileKeys);
  tile.present = 0;
  tile.absent = 0;
  tile.first_absent_page = -1;
  const bool k_scaled = HasScales(segment.k);
  const bool v_scaled = HasScales(segment.v);
  TokenCursor cursor(segment, table_row, key_begin - segment_key);
  for (i64 key = key_begin; key < key_end; ++key, cursor.Next()) {
    const i64 lane = key - tile.base;
    if (!cursor.exists()) {
      tile.absent |= u64{1} << lane;
      if (tile.first_absent_page < 0) tile.first_absent_page = cursor.page();
      continue;
    }
    tile.present |= u64{1} << lane;
    const i64 page = cursor.id();
    const i64 offset = cursor.offset();
    tile.k[lane] = DataAt(segment.k, page, offset);
    tile.v[lane] = DataAt(segment.v, page, offset);
    if (k_scaled) tile.k_scales[lane] = ScalesAt(segment.k, page, offset);
    if (v_scaled) tile.v_scales[lane] = ScalesAt(segment.v, page, offset);
    if (segment.v.interleaved4) tile.token_in_page[lane] = offset;
  }
}

void KeyRows(const SideParams& k, const TileRows& tile, i64 head, u64 lanes, HeadRows& out) {
  SideRows(k, tile.k, tile.k_scales, head, lanes, out);
}

void ValueRows(const SideParams& v, const TileRows& tile, i64 head, u64 lanes, HeadRows& out) {
  SideRows(v, tile.v, tile.v_scales, head, lanes, out);
}

void LinearizeScales(const SideParams& v, const TileRows& tile, u64 lanes, u8* scratch,
                     HeadRows& rows) {
  const i64 blocks = v.head_dim / 16;
  for (int t = 0; t < kTileKeys; ++t) {
    if ((lanes >> t & 1) == 0) continue;
    const i64 token = tile.token_in_page[t];
    u8* linear = scratch + t * blocks;
    for (i64 s = 0; s < blocks; ++s) {
      linear[s] = rows.scales[t][contract::ScaleRow(true, token, s, blocks) * v.scale_token_stride +
                                 contract::ScaleColumn(true, token, s, blocks)];
    }
    rows.scales[t] = linear;
  }
}

}  // namespace kvilt::cpu
