#include "src/cpu/item_rows.h"

namespace kvilt::cpu {
namespace {

using contract::AttentionParams;
using contract::Mask;
using contract::RequestInfo;

u64 LanesBelow(i64 count) { return count >= 64 ? ~u64{0} : (u64{1} << count) - 1; }

}  // namespace

ItemRow MakeRow(const AttentionParams& params, const RequestInfo& request, i64 i) {
  ItemRow row;
  static_cast<contract::QueryRow&>(row) = contract::MakeQueryRow(params, request, i);
  return row;
}

i64 CountRows(const plan::PlanDataView& plan, i64 span_begin, i64 span_count) {
  i64 count = 0;
  for (i64 s = span_begin; s < span_begin + span_count; ++s) {
    const contract::WorkSpan& span = plan.spans[static_cast<std::size_t>(s)];
    count += plan.blocks[static_cast<std::size_t>(span.block)].row_count;
  }
  return count;
}

i64 CollectRows(const Launch& launch, i64 span_begin, i64 span_count, ItemRow* rows) {
  const plan::PlanDataView& plan = *launch.plan;
  i64 count = 0;
  for (i64 s = span_begin; s < span_begin + span_count; ++s) {
    const contract::WorkSpan& span = plan.spans[static_cast<std::size_t>(s)];
    const contract::RowBlock& block = plan.blocks[static_cast<std::size_t>(span.block)];
    const RequestInfo& request = plan.requests[static_cast<std::size_t>(block.request)];
    for (i64 i = 0; i < block.row_count; ++i) {
      ItemRow& row = rows[count++];
      row = MakeRow(*launch.params, request, block.row_begin + i);
      row.block = span.block;
      row.split = span.split;
      row.row_in_block = i;
      row.request = block.request;
    }
  }
  return count;
}

u64 VisibleLanes(const AttentionParams& params, const RequestInfo& request, const ItemRow& row,
                 i64 base, i64 key_begin, i64 key_end) {
  const i64 begin = contract::Max(row.visible.begin, key_begin);
  const i64 end = contract::Min(row.visible.end, key_end);
  if (begin >= end) return 0;
  u64 lanes = LanesBelow(end - base) & ~LanesBelow(begin - base);
  const contract::i32 mask = params.visibility.mask;
  const bool custom = mask == static_cast<contract::i32>(Mask::kCustom);
  const bool tree = mask == static_cast<contract::i32>(Mask::kTree);
  if (custom || (tree && end > row.kv_len - row.q_len)) {
    const u8* bits = params.mask_bits + request.mask_byte_begin;
    for (i64 j = begin; j < end; ++j) {
      if (!contract::MaskAllows(mask, bits, row.row, j, row.q_len, row.kv_len)) {
        lanes &= ~(u64{1} << (j - base));
      }
    }
  }
  return lanes;
}

}  // namespace kvilt::cpu
