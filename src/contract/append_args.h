// What a launch of the append, dequantize and copy_rows kernels gets, by value. Every pointer is
// one of the device.
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

struct AppendArgs {
  // Its slots lie in device memory and are not trusted: -1 is counted as skipped, any other outside
  // [0, capacity) is left out. None twice.
  AppendParams params;
  i64 capacity = 0;         // In slots: pages * page_size.
  u64* k_health = nullptr;  // [kHealthCounters], added to; may be null.
  u64* v_health = nullptr;
  u32* error = nullptr;  // May be null.
};

struct DequantizeArgs {
  DequantizeParams params;
  i64 capacity = 0;  // The rows of slots outside [0, capacity) become 0.
};

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
