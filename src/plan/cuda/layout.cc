// What the strides of a cache allow a GPU to copy at once.
#include <algorithm>
#include <cstdint>

#include "src/plan/cuda/tiles.h"

namespace kvilt::plan::cuda {
namespace {

// One tensor of a side (codes or scales) in bytes.
struct Rows {
  const TensorView& view;
  bool paged;
  bool nhd;

  std::int64_t unit() const { return StorageBytes(view.dtype); }
  int token_axis() const { return (paged ? 1 : 0) + (nhd ? 0 : 1); }
  int head_axis() const { return (paged ? 1 : 0) + (nhd ? 1 : 0); }
  std::int64_t row_bytes() const { return view.shape[view.rank - 1] * unit(); }
  std::int64_t token_stride() const { return view.stride[token_axis()] * unit(); }
  std::int64_t head_stride() const { return view.stride[head_axis()] * unit(); }
  std::int64_t page_stride() const { return paged ? view.stride[0] * unit() : 0; }
  std::int64_t tokens() const { return view.shape[token_axis()]; }
  std::int64_t heads() const { return view.shape[head_axis()]; }
};

int Divisor(std::int64_t value, int width) {
  while (value % width != 0) width /= 2;
  return width;
}

void AddRows(const Rows& rows, TileQuery& query) {
  const bool one_token = rows.tokens() <= 1;
  const bool one_head = rows.heads() <= 1;
  const bool whole_head = one_token || rows.token_stride() == rows.row_bytes();
  const bool whole_page =
      rows.nhd ? (one_head || rows.head_stride() == rows.row_bytes()) &&
                     (one_token || rows.token_stride() == rows.heads() * rows.row_bytes())
               : whole_head && (one_head || rows.head_stride() == rows.tokens() * rows.row_bytes());
  query.whole_heads = query.whole_heads && (!rows.nhd || one_head) && whole_head;
  query.whole_pages = query.whole_pages && whole_page;
  const auto base = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(rows.view.data));
  int width = Divisor(base, query.copy_bytes);
  width = Divisor(rows.page_stride(), width);
  // A page of one head in one stretch is copied at once, whatever its rows measure.
  width =
      Divisor(rows.nhd || !whole_head ? rows.row_bytes() : rows.tokens() * rows.row_bytes(), width);
  if (!whole_head && !one_token) width = Divisor(rows.token_stride(), width);
  if (!one_head) width = Divisor(rows.head_stride(), width);
  query.copy_bytes = width;
  width = Divisor(base, query.page_copy_bytes);
  width = Divisor(rows.page_stride(), width);
  query.page_copy_bytes = Divisor(rows.tokens() * rows.heads() * rows.row_bytes(), width);
}

void AddSide(const CacheSide& side, bool paged, TileQuery& query) {
  const bool nhd = side.layout == KvLayout::kNHD;
  AddRows({side.data, paged, nhd}, query);
  if (side.scales.defined()) AddRows({side.scales, paged, nhd}, query);
}

}  // namespace

void AddSegmentLayout(const Segment& segment, TileQuery& query) {
  const bool paged = segment.paged() != nullptr;
  AddSide(segment.k(), paged, query);
  AddSide(segment.v(), paged, query);
  const CacheSide& k = segment.k();
  const std::int64_t page_size =
      paged ? k.data.shape[k.layout == KvLayout::kNHD ? 1 : 2] : std::int64_t{1} << 40;
  query.page_size = std::min(query.page_size, page_size);
}

std::string_view FormatName(int format) {
  return format == contract::kAnyFormat ? "mixed" : Name(static_cast<DType>(format));
}

}  // namespace kvilt::plan::cuda
