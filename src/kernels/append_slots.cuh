// Where the last tokens of each request lie, from a page table in device memory: what
// src/api/cache_slots.cc does for tables of the host.
//
// A thread for each token.
#pragma once

#include "append_args.h"
#include "simt.cuh"

namespace kvilt::kernels {

using namespace simt;  // NOLINT: the machine's words.

using contract::AppendSlotsArgs;

// The request that token `i` is of: the last one with token_indptr[r] <= i.
inline i64 RequestOfToken(const AppendSlotsArgs& args, i64 i) {
  i64 low = 0;
  i64 high = args.batch;
  while (high - low > 1) {
    const i64 middle = (low + high) / 2;
    (args.token_indptr[middle] <= i ? low : high) = middle;
  }
  return low;
}

inline i64 SlotOfToken(const AppendSlotsArgs& args, i64 i) {
  const contract::SegmentParams& segment = args.segment;
  const i64 request = RequestOfToken(args, i);
  const i64 position = args.kv_lengths[request] - (args.token_indptr[request + 1] - i);
  const i64 first = args.table_begins[request];
  if (segment.table == static_cast<i32>(contract::TableKind::kRagged)) return first + position;
  const i64 page = position / segment.page_size;
  const i64 id = contract::LoadIndex(segment.indices, segment.index_is_i64, first + page);
  if (id < 0 || id >= segment.pages) return contract::kAbsentSlot;
  return id * segment.page_size + position - page * segment.page_size;
}

// Every thread of blocks of kWriterThreads, any grid.
inline void AppendSlots(const AppendSlotsArgs& args) {
  WaitForPrevious();
  const i64 tokens = args.token_indptr[args.batch];
  const i64 step = i64{GridBlocks()} * BlockThreads();
  for (i64 i = i64{BlockIndex()} * BlockThreads() + ThreadIndex(); i < tokens; i += step) {
    args.slots[i] = SlotOfToken(args, i);
  }
  LetNextStart();
}

}  // namespace kvilt::kernels
