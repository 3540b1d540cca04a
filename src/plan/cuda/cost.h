// What work costs on a GPU: every number that the planner weighs for one, with its source.
//
// Unless said otherwise measured on one H200 with a prototype, 2026-11-30 (GPU-NOTES.md); cycles
// are those of the SM clock. docs/planner.md explains the model; only choices hang on it, never
// results.
#pragma once

#include <cstdint>

#include "src/contract/tile_shape.h"
#include "src/contract/work_item.h"

namespace kvilt::plan::cuda {

// --- Work partition ---

// A split shorter than this is not worth a block: 1 x 1k ran best in 16 splits of 64 keys.
inline constexpr std::int64_t kMinSplitKeys = 64;
// Cycles of an item beside its keys: query load to fragments 850 to 1200, first keys about 2000 of
// which the load hides half, reduction and writing 0.9 us.
inline constexpr double kItemCycles = 3500;
// The same in the prefill kernel by mma.sync: rows looked up through the plan 5000, query 2000,
// first keys 2000, writing 5000 (latencies of dependent loads, estimated from ncu samples).
inline constexpr double kPrefillItemCycles = 12000;
// kAuto keeps partials to so many vectors for each SM, which bounds any workspace. Ranges make at
// most two partials for each block; with two blocks per SM and 128 rows this is room for two
// launches.
inline constexpr std::int64_t kPartialsPerSm = 2 * 2 * 2 * 128;
// Vectors of one merge item: a block of the merge kernel each.
inline constexpr std::int64_t kMergeVectors = contract::kMergeVectors;
// Most bytes of partials that one arriving block should merge by itself.
inline constexpr std::int64_t kFusedMergeBytes = 64 * 1024;

// --- Throughput of one SM ---

// Warp instructions per cycle that the decode kernel reaches where issue limits it.
inline constexpr double kInstructionsPerCycle = 2.73;
// Share of the data sheet's bandwidth that a plain read reaches: 4405 of 4800 GB/s.
inline constexpr double kReadEfficiency = 0.918;
// Bytes in flight per SM at which half of the bandwidth is reached: 74 KB gave 87 to 94 % of the
// time's ideal, 147 KB 95 to 100 %.
inline constexpr double kHalfRateBytes = 9 * 1024;
// Share of that rate where each copy is one row of one head out of NHD pages: 2970 of 4405 GB/s.
inline constexpr double kRowwiseReads = 0.67;
// A bulk copy occupies its issuing warp so long.
inline constexpr double kBulkCopyCycles = 105;
// Instructions of a thread for one asynchronous copy of 16 bytes or less, addresses included.
inline constexpr double kCopyInstructions = 10;
// Share of the MMA rate that a loop of MMA, softmax and loads reaches (mma.sync; wgmma).
inline constexpr double kMmaEfficiency = 0.75;
inline constexpr double kWgmmaEfficiency = 0.85;

// Warp instructions x 32 per stored element and 8 query rows in the decode kernel. NVFP4 2.74 by
// counter; the others by their conversions: e4m3 0.5 instead of 1.4 per element, 16 bit none.
constexpr double DecodeInstructions(int format) {
  switch (static_cast<contract::Format>(format)) {
    case contract::Format::kNVFP4:
      return 2.74;
    case contract::Format::kE4M3:
    case contract::Format::kE5M2:
      return 1.7;
    default:
      return 1.1;
  }
}
// Saved per element where e2m1 or e4m3 convert natively (one conversion for two elements instead of
// shifts and masks); counted, not measured.
inline constexpr double kNativeConversionSaves = 0.6;
// Each further tile of 8 query rows: its MMA and softmax, without the decoding.
inline constexpr double kRowTileInstructions = 0.35;
// Decoding into an operand tile by the prefill kernel: NVFP4 3.2 per element, fp8 1.6, counted in
// its SASS; 16 bit is copied only.
constexpr double OperandInstructions(int format) {
  switch (static_cast<contract::Format>(format)) {
    case contract::Format::kNVFP4:
      return 3.2;
    case contract::Format::kE4M3:
    case contract::Format::kE5M2:
      return 1.6;
    default:
      return 0.1;
  }
}
// The prefill kernel by mma.sync, counted in its SASS and by ncu: fragments and MMAs of a multiply-
// add of one row and key, softmax of a score, what a warp spends on each step of StepRows keys
// beside them, and on each stage.
inline constexpr double kMultiplyInstructions = 1.0 / 29;
inline constexpr double kScoreInstructions = 10;
inline constexpr double kStepInstructions = 80;
inline constexpr double kStageInstructions = 150;
// Its warp instructions per cycle for each resident warp, until kInstructionsPerCycle: 1.26 and
// 1.49 with 8 of them (ncu, H200, 2026-12-01).
inline constexpr double kInstructionsPerWarp = 0.18;
// Softmax of the wgmma prototype: about 350 instructions for 64 scores of a thread.
inline constexpr double kWgmmaScoreInstructions = 350.0 / 64;

// --- A launch ---

inline constexpr double kLaunchUs = 2.0;       // Empty persistent kernel.
inline constexpr double kFirstKeysUs = 2.5;    // Until every SM computes.
inline constexpr double kFinishUs = 0.9;       // Reduce and write; twice that with many heads.
inline constexpr double kMergeUs = 0.6;        // Second kernel, overlapped by dependent launch.
inline constexpr double kMergeSplitUs = 0.02;  // Per split of one vector.

// Registers of a thread beside accumulators and fragments: addresses, softmax, decoding. From the
// prototype: 106 of 112 at head dim 128 (48 of them accumulators and Q), 196 of 232 at 512.
inline constexpr int kDecodeBaseRegisters = 56;
inline constexpr int kWgmmaBaseRegisters = 64;
// The prefill kernel: what ptxas gives without spilling, measured by the compile matrix.
inline constexpr int kPrefillBaseRegisters = 80;
inline constexpr double kPrefillPerAccumulator = 1.2;
inline constexpr int kPrefillWideRegisters = 16;  // More than 128 output dims of one warp.
inline constexpr int kProducerRegisters = 32;
inline constexpr int kMaxRegisters = 255;

}  // namespace kvilt::plan::cuda
