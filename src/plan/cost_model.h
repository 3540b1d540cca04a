// What work costs, in multiply-adds: every number that the planner weighs stands here.
//
// A key of one KV head costs (M + ReadRows) * (head_dim_qk + head_dim_vo), where M counts the query
// rows times the group that use it, and ReadRows says what fetching and decoding the key costs,
// as so many query rows more. Only ratios matter. Sources: CPU-NOTES.md, (32,8,128), one thread of
// a Zen 4 class core, 2026-11-30: a multiply-add of the bf16 path is about 0.0105 ns; NVFP4
// 15 ns per key and KV head at M = 4, so (15 - 4 * 256 * 0.0105) / (256 * 0.0105) = 1.6 rows;
// bf16 28 ns, so 6.4 rows (DRAM is the limit). fp8 and f32 lie between and above by their bytes.
#pragma once

#include <cstdint>

#include "kvilt/dtype.h"

namespace kvilt::plan {

// Keys of one tile of the CPU backend; tiles lie at absolute multiples of it.
inline constexpr std::int64_t kTileKeys = 64;

// kAuto aims at this many items for each slot: list scheduling of items no longer than 1/4 of a
// slot's share ends within 1.25 of the ideal, and usually within 1.05.
inline constexpr double kItemsPerSlot = 4;
// Items per slot where only a cut by KV heads is left, which costs locality in NHD caches.
inline constexpr double kHeadItemsPerSlot = 2;
// A split shorter than this does not repay its partial: writing and merging one costs about as
// much as 16 keys.
inline constexpr std::int64_t kMinSplitKeys = 512;
// About 3 us of work: a smaller item costs more to hand to a sleeping thread than it saves.
inline constexpr double kMinItemCost = 256 * 1024;
// From so many rows (times group) on, arithmetic hides the reads, so work is cut by KV heads
// before keys: that needs no partials.
inline constexpr std::int64_t kComputeBoundRows = 32;
// Rows (times group) of a block at most: each decoded key then serves that many rows, and decoding
// is a few percent of the work.
inline constexpr std::int64_t kBlockRows = 128;

// Set-up of an item, and per row: loading q, writing out or a partial, in keys.
inline constexpr double kItemSetupCost = 32 * 1024;
inline constexpr double kRowSetupKeys = 8;
// Writing a partial row and merging it, in keys.
inline constexpr double kPartialKeys = 16;
// Elements of partials that one merge item reads, at least one row.
inline constexpr std::int64_t kMergeElements = 32 * 1024;

constexpr double ReadRows(DType k, DType v) {
  const auto rows = [](DType dtype) {
    switch (dtype) {
      case DType::kNVFP4:
        return 1.6;
      case DType::kE4M3:
      case DType::kE5M2:
        return 3.0;
      case DType::kF32:
        return 13.0;
      default:
        return 6.4;
    }
  };
  return (rows(k) + rows(v)) / 2;
}

// `rows` counts query rows times group, `dims` is head_dim_qk + head_dim_vo.
constexpr double KeyCost(double rows, double read_rows, int dims) {
  return (rows + read_rows) * dims;
}

// The cost of an item beside its keys.
constexpr double SetupCost(double rows, double kv_heads, int dims) {
  return kItemSetupCost + kRowSetupKeys * rows * kv_heads * dims;
}

}  // namespace kvilt::plan
