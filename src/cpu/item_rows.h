// The query rows of a work item, and which keys of a tile each of them sees.
#pragma once

#include "src/contract/query_row.h"
#include "src/cpu/launch.h"

namespace kvilt::cpu {

struct ItemRow : contract::QueryRow {
  i64 block = 0;
  i64 split = 0;
  i64 row_in_block = 0;
  i64 request = 0;
};

// Row i of a request, without its place among the blocks.
ItemRow MakeRow(const contract::AttentionParams& params, const contract::RequestInfo& request,
                i64 i);

// Rows of spans [span_begin, span_begin + span_count), in order, to `rows`. Returns their number.
i64 CollectRows(const Launch& launch, i64 span_begin, i64 span_count, ItemRow* rows);
i64 CountRows(const plan::PlanDataView& plan, i64 span_begin, i64 span_count);

// Bit t: the row sees key base + t, of keys [key_begin, key_end) of the tile at `base`.
u64 VisibleLanes(const contract::AttentionParams& params, const contract::RequestInfo& request,
                 const ItemRow& row, i64 base, i64 key_begin, i64 key_end);

}  // namespace kvilt::cpu
