// One work item: tiles of 64 keys outer, KV heads inner, so a page is visited once for all heads.
//
//   for each tile of 64 keys (absolute multiples of 64, cut at item and segment borders)
//     for each KV head
//       decode the K tile and the V tile once
//       for all query rows that see a key of it, all heads of the group: attend
//
// States (reference, sum, output) of all rows stay in the worker's scratch; at the end of the item
// they go to out and lse (a row with one split) or to the workspace.
#pragma once

#include "src/contract/work_item.h"
#include "src/cpu/launch.h"

namespace kvilt::cpu {

// Bytes of scratch that RunItem needs for the item.
i64 ItemScratchBytes(const Launch& launch, const contract::WorkItem& item);

void RunItem(const Launch& launch, const contract::WorkItem& item, std::byte* scratch);

}  // namespace kvilt::cpu
