// What a launch of the append, append_slots, dequantize and copy_rows kernels gets, by value. Every
// pointer is one of the device.
#pragma once

#include "append_params.h"

namespace kvilt::contract {

// Threads of a block of each kernel that writes rows; any grid.
inline constexpr i32 kWriterThreads = 128;

// Places in an array of health counters, the order of the public HealthCounters.
enum class Health : i32 {
  kNan = 0,
  kInfinite = 1,
  kSaturated = 2,
  kFlushedBlocks = 3,
  kSkipped = 4
};
inline constexpr i32 kHealthCounters = 5;

// What AppendArgs::error becomes, if it was 0.
enum class WriterError : u32 {
  kBadSlot = 1,  // A slot that is neither -1 nor in [0, capacity): its token was left out.
};

// Slots in device memory, which are not trusted.
struct SlotArray {
  const void* slots = nullptr;
  i32 is_i64 = 0;
  i64 capacity = 0;  // pages * page_size; good slots are in [0, capacity).
};

struct AppendArgs {
  AppendParams params;  // Its `slots` are not read:
  SlotArray slots;  // [tokens]; -1 is counted as skipped, other bad ones are left out. None twice.
  u64* k_health = nullptr;  // [kHealthCounters], added to; may be null.
  u64* v_health = nullptr;
  u32* error = nullptr;  // May be null.
};

struct DequantizeArgs {
  DequantizeParams params;  // Its `slots` are not read:
  SlotArray slots;          // [tokens]; the rows of bad ones become 0.
};

// The slots of the last tokens of each request, found in a page table: those that AppendArgs needs
// when the table lies in device memory. With all tokens of a request, those of DequantizeArgs.
struct AppendSlotsArgs {
  SegmentParams segment;              // Its table alone is read, `indptr` not.
  const i64* table_begins = nullptr;  // [batch], as in AttentionArgs.
  const i64* token_indptr = nullptr;  // [batch + 1]; request r has tokens [r], [r + 1) of the slots
  const i64* kv_lengths = nullptr;    // [batch]; which are its last of so many.
  i64 batch = 0;
  i64* slots = nullptr;  // Written: [token_indptr[batch]]; kAbsentSlot for an absent page.
};
inline constexpr i64 kAbsentSlot = -2;

// One of the up to four tensors of a cache. Strides and row in bytes.
struct CopiedTensor {
  u8* data = nullptr;
  i64 page_stride = 0;
  i64 token_stride = 0;
  i64 head_stride = 0;
  i64 row_bytes = 0;
  i64 granule = 1;  // Rows that only make sense together.
};

// Rows [0, rows) of page `from` onto those of page `to`. In range, from != to.
struct CopiedPage {
  i64 from = 0;
  i64 to = 0;
  i64 rows = 0;
};

inline constexpr i32 kMaxCopiedTensors = 4;

struct CopyRowsArgs {
  CopiedTensor tensors[kMaxCopiedTensors];
  i32 tensor_count = 0;
  // 1: no copy writes a page that another one reads or writes, so all may run at once. 0: they take
  // effect in their order, each thread doing all of them.
  i32 apart = 0;
  i64 heads = 0;
  i64 page_size = 0;
  const CopiedPage* copies = nullptr;
  i64 copy_count = 0;
};

}  // namespace kvilt::contract
