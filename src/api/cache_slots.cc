#include "src/api/cache_slots.h"

#include <algorithm>

namespace kvilt::api {
namespace {

using contract::i64;
using contract::SegmentParams;
using contract::TableKind;

// First slot of page `page` of the row, in the order of its tokens.
i64 PageSlot(const SegmentParams& segment, i64 row, i64 page) {
  i64 at = 0;
  if (static_cast<TableKind>(segment.table) == TableKind::kPadded) {
    at = row * segment.row_stride + page;
  } else {
    at = contract::LoadIndex(segment.indptr, segment.indptr_is_i64, row) + page;
  }
  return contract::LoadIndex(segment.indices, segment.index_is_i64, at) * segment.page_size;
}

}  // namespace

void PushSlots(const SegmentParams& segment, std::int64_t row, std::int64_t begin, std::int64_t end,
               std::vector<i64>& slots) {
  if (begin >= end) return;
  if (static_cast<TableKind>(segment.table) == TableKind::kRagged) {
    const i64 first = contract::LoadIndex(segment.indptr, segment.indptr_is_i64, row);
    for (i64 token = begin; token < end; ++token) slots.push_back(first + token);
    return;
  }
  for (i64 token = begin; token < end;) {
    const i64 page = token / segment.page_size;
    const i64 first = PageSlot(segment, row, page);
    const i64 page_end = std::min<i64>(end, (page + 1) * segment.page_size);
    for (; token < page_end; ++token) slots.push_back(first + token - page * segment.page_size);
  }
}

SlotPair FindDuplicate(std::span<const i64> slots) {
  i64 previous = -1;
  bool ascending = true;
  for (i64 slot : slots) {
    if (slot < 0) continue;
    ascending &= slot > previous;
    previous = slot;
  }
  if (ascending) return {};

  std::vector<std::int64_t> order;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (slots[i] >= 0) order.push_back(static_cast<std::int64_t>(i));
  }
  const auto slot_of = [&](std::int64_t i) { return slots[static_cast<std::size_t>(i)]; };
  std::sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return slot_of(a) != slot_of(b) ? slot_of(a) < slot_of(b) : a < b;
  });
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (slot_of(order[i - 1]) == slot_of(order[i])) return {order[i - 1], order[i]};
  }
  return {};
}

}  // namespace kvilt::api
