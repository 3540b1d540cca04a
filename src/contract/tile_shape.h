// TileShape: the one template argument of a GPU kernel, and a plain value of the planner.
//
// The planner chooses it, counts its shared memory and registers here, and stores it in the plan
// data; the kernel says static_assert(sizeof(Smem) == SmemBytes(kTile)). One block of threads:
//
//   ring of `stages`, packed as stored          consumer warps
//   +--------+--------+-- ... --+--------+      warps_rows x warps_kv x warps_vo (x kv_heads)
//   | K | V  |        |         |        |  ->  scores, softmax, output in registers
//   +--------+--------+-- ... --+--------+            | reduce over warps_kv
//        ^ producer warps (or the consumers)          v
//        |                                      out and lse, or a partial in the workspace
//   pages of the cache
//
// kDecode reads packed stages straight into fragments of the A operand (S^T = K Q^T); kPrefill and
// kPrefillWgmma first decode a stage once into a 16-bit operand tile that many query rows use.
#pragma once

#include "attention_params.h"
#include "types.h"

namespace kvilt::contract {

enum class KernelFamily : i32 {
  kDecode = 0,        // Few query rows: m16n8k16 with K and V^T as the A operand.
  kPrefill = 1,       // Many query rows: m16n8k16 over 16-bit operand tiles in shared memory.
  kPrefillWgmma = 2,  // The same through wgmma, with warps that only decode (sm_90a).
};

// Families whose kernels exist (src/kernels); the planner weighs the others for tests alone.
constexpr bool HasKernel(KernelFamily family) { return family == KernelFamily::kPrefill; }

struct TileShape {
  i32 family = 0;    // KernelFamily
  i32 k_format = 0;  // Format, as stored.
  i32 v_format = 0;
  i32 q_rows = 0;          // Query rows x group of a block, of one KV head; padded.
  i32 kv_rows = 0;         // Keys of one stage.
  i32 head_dim_qk = 0;     // Padded.
  i32 head_dim_vo = 0;     // Padded.
  i32 kv_heads = 1;        // KV heads of a block, each with warps of its own.
  i32 stages = 0;          // Of the ring of packed K and V.
  i32 operand_stages = 0;  // Of 16-bit tiles; 0: the ring is the operand.
  i32 warps_rows = 1;      // Consumer warps side by side over query rows,
  i32 warps_kv = 1;        // over stages (subsets that take turns), reduced at the end of an item,
  i32 warps_vo = 1;        // and over the output's head dim.
  i32 producer_warps = 0;  // 0: consumers copy for themselves.
  i32 consumer_registers = 0;  // Per thread, by setmaxnreg; 0: the same for all.
  i32 producer_registers = 0;
  i32 launch_registers = 0;  // Per thread at launch.
  i32 blocks_per_sm = 1;     // Resident, by __launch_bounds__.
  i32 copy_bytes = 16;       // Per copy of codes: 16, 8, 4, 2 or 1.
  i32 bulk_copy = 0;         // 1: whole pages by cp.async.bulk where contiguous.
  i32 q_parts = 1;           // 16-bit tiles that add up to Q: 2 where one cannot hold it exactly.
  i32 k_parts = 1;           // The same for K: 2 once RoPE has rotated it.
  i32 q_in_smem = 0;         // 1: fragments of Q are read from shared memory at each step.
  i32 reduce_slots = 0;      // Outputs that wait in shared memory while warps_kv are reduced.
  i32 fused_merge = 0;       // 1: the block that arrives last merges the splits.

  friend constexpr bool operator==(const TileShape&, const TileShape&) = default;
};

// ---------------------------------------------------------------- bytes

constexpr i32 kBlockOfScale = 16;  // Elements that share an NVFP4 scale.
constexpr i32 kAnyFormat = -1;     // A tile that finds out from each segment; room for the widest.

// Bytes of `dim` stored elements, without scales; dense, so a nibble each for NVFP4.
constexpr i32 CodeBytes(i32 format, i32 dim) {
  if (format == kAnyFormat) return dim * 2;
  switch (static_cast<Format>(format)) {
    case Format::kF32:
      return dim * 4;
    case Format::kBF16:
    case Format::kF16:
      return dim * 2;
    case Format::kNVFP4:
      return dim / 2;
    default:
      return dim;
  }
}
constexpr i32 ScaleBytes(i32 format, i32 dim) {
  const bool scaled = format == kAnyFormat || static_cast<Format>(format) == Format::kNVFP4;
  return scaled ? dim / kBlockOfScale : 0;
}
constexpr bool Is16Bit(i32 format) {
  return static_cast<Format>(format) == Format::kBF16 ||
         static_cast<Format>(format) == Format::kF16;
}

// Whether a side passes through 16-bit operand tiles: decoded formats do, and all where there is no
// ring. A 16-bit side of a ring is read where it was copied to.
constexpr bool NeedsOperand(const TileShape& t, i32 format) {
  return t.operand_stages > 0 && (t.stages == 0 || !Is16Bit(format));
}
constexpr bool NeedsKOperand(const TileShape& t) {
  return NeedsOperand(t, t.k_format) || t.k_parts > 1;
}
constexpr bool NeedsVOperand(const TileShape& t) { return NeedsOperand(t, t.v_format); }

// ---------------------------------------------------------------- warps

constexpr i32 kWarp = 32;

// Warps that consume one stage together.
constexpr i32 SubsetWarps(const TileShape& t) { return t.kv_heads * t.warps_rows * t.warps_vo; }
constexpr i32 ConsumerWarps(const TileShape& t) { return SubsetWarps(t) * t.warps_kv; }
constexpr i32 Threads(const TileShape& t) { return (ConsumerWarps(t) + t.producer_warps) * kWarp; }
constexpr i32 RowsPerWarp(const TileShape& t) { return t.q_rows / t.warps_rows; }
// Output dims of one warp, in steps of 16; the last of warps_vo may have fewer.
constexpr i32 DimsPerWarp(const TileShape& t) {
  return RoundUp(CeilDiv(t.head_dim_vo, t.warps_vo), 16);
}

// Stages that each subset of consumers needs: one that it computes on and one that arrives; where
// both sides are first decoded into operand tiles, the arriving one is enough.
constexpr i32 LeastStagesOfSubset(const TileShape& t) {
  return NeedsKOperand(t) && NeedsVOperand(t) ? 1 : 2;
}

// Subsets of consumers and producer warps go round the ring independently. Unless both divide it,
// a warp meets a stage's barrier in two parities within one round, and a slot is overwritten while
// it is read (GPU-NOTES section 4). In kPrefill the block takes a stage together and warps_kv cut
// its keys, 16 at least for each.
constexpr bool RingRuleHolds(const TileShape& t) {
  if (t.stages == 0) return t.operand_stages > 0;
  if (t.family == static_cast<i32>(KernelFamily::kPrefill)) {
    return t.stages >= LeastStagesOfSubset(t) && t.kv_rows % (16 * t.warps_kv) == 0;
  }
  return t.stages % t.warps_kv == 0 && t.stages >= LeastStagesOfSubset(t) * t.warps_kv &&
         (t.producer_warps == 0 || t.stages % t.producer_warps == 0);
}

// ---------------------------------------------------------------- shared memory

enum class SmemPart : i32 {
  kQ = 0,
  kKOperand,
  kVOperand,
  kK,
  kV,
  kKScales,
  kVScales,
  kReduce,    // Outputs of warps_kv on their way to the sum.
  kState,     // Softmax states of all consumer warps.
  kRows,      // What the rows of the tile are (attention_args.h).
  kKeys,      // Where the keys of the stages lie.
  kBarriers,  // mbarriers, full and empty, of each stage of the ring and of the operand tiles.
  kPadding,   // What alignment costs.
  kCount,
};
constexpr i32 kSmemParts = static_cast<i32>(SmemPart::kCount);

// Stages whose key places are kept: those in the ring, the one that is looked up, and the one that
// the slowest warp is still at.
constexpr i32 KeyPlaceStages(const TileShape& t) { return t.stages + 2; }
inline constexpr i32 kTileRowBytes = 48;    // sizeof(TileRow),
inline constexpr i32 kKeyPlaceBytes = 8;    // sizeof(KeyPlace), attention_args.h.
inline constexpr i32 kStageFlagBytes = 16;  // A word for each 32 keys of a stage.

// Operand tiles are 1024-byte aligned for the 128-byte swizzle, everything else 128.
constexpr i32 SmemAlign(SmemPart part) { return part <= SmemPart::kVOperand ? 1024 : 128; }

constexpr bool ReduceReusesKeys(const TileShape& t);

constexpr i32 SmemPartBytes(const TileShape& t, SmemPart part) {
  const i32 stage_rows = t.kv_heads * t.kv_rows;
  const i32 rows = t.kv_heads * t.q_rows;
  const bool prefill = t.family == static_cast<i32>(KernelFamily::kPrefill);
  switch (part) {
    case SmemPart::kQ:
      return t.q_in_smem ? t.q_parts * rows * t.head_dim_qk * 2 : 0;
    case SmemPart::kKOperand:
      return NeedsKOperand(t) ? t.operand_stages * t.k_parts * stage_rows * t.head_dim_qk * 2 : 0;
    case SmemPart::kVOperand:
      return NeedsVOperand(t) ? t.operand_stages * stage_rows * t.head_dim_vo * 2 : 0;
    case SmemPart::kK:
      return t.stages * stage_rows * CodeBytes(t.k_format, t.head_dim_qk);
    case SmemPart::kV:
      return t.stages * stage_rows * CodeBytes(t.v_format, t.head_dim_vo);
    case SmemPart::kKScales:
      return t.stages * stage_rows * ScaleBytes(t.k_format, t.head_dim_qk);
    case SmemPart::kVScales:
      return t.stages * stage_rows * ScaleBytes(t.v_format, t.head_dim_vo);
    case SmemPart::kReduce:
      return ReduceReusesKeys(t) ? 0 : t.reduce_slots * rows * t.head_dim_vo * 4;
    case SmemPart::kState:
      return t.warps_kv > 1 ? rows * t.warps_kv * t.warps_vo * 3 * 4 : 0;
    case SmemPart::kRows:
      return prefill ? t.q_rows * kTileRowBytes : 0;
    case SmemPart::kKeys:
      return prefill ? KeyPlaceStages(t) * (t.kv_rows * kKeyPlaceBytes + kStageFlagBytes) : 0;
    case SmemPart::kBarriers:
      return t.producer_warps > 0 ? (t.stages + 2 * t.operand_stages) * 2 * 8 : 0;
    default:
      return 0;
  }
}

// In kPrefill no key is under way when warps_kv are reduced, so outputs may wait where operand
// tiles or the ring were.
constexpr bool ReduceReusesKeys(const TileShape& t) {
  if (t.family != static_cast<i32>(KernelFamily::kPrefill)) return false;
  const i32 keys = SmemPartBytes(t, SmemPart::kKOperand) + SmemPartBytes(t, SmemPart::kVOperand) +
                   SmemPartBytes(t, SmemPart::kK) + SmemPartBytes(t, SmemPart::kV);
  return t.reduce_slots * t.q_rows * t.head_dim_vo * 4 <= keys;
}

// Where a part begins; parts lie in the order of the enum. For kPadding and kCount: the end.
constexpr i32 SmemOffset(const TileShape& t, SmemPart part) {
  i32 offset = 0;
  for (i32 p = 0; p < static_cast<i32>(SmemPart::kPadding); ++p) {
    const SmemPart at = static_cast<SmemPart>(p);
    const i32 bytes = SmemPartBytes(t, at);
    if (bytes != 0) offset = RoundUp(offset, SmemAlign(at));
    if (at == part) return offset;
    offset += bytes;
  }
  return offset;
}

// Where outputs wait for their reduction.
constexpr i32 ReduceOffset(const TileShape& t) {
  if (!ReduceReusesKeys(t)) return SmemOffset(t, SmemPart::kReduce);
  return SmemOffset(t, NeedsKOperand(t)   ? SmemPart::kKOperand
                       : NeedsVOperand(t) ? SmemPart::kVOperand
                                          : SmemPart::kK);
}

// Dynamic shared memory of a block.
constexpr i32 SmemBytes(const TileShape& t) {
  return RoundUp(SmemOffset(t, SmemPart::kCount), 128);
}
constexpr i32 SmemPaddingBytes(const TileShape& t) {
  i32 used = 0;
  for (i32 p = 0; p < static_cast<i32>(SmemPart::kPadding); ++p) {
    used += SmemPartBytes(t, static_cast<SmemPart>(p));
  }
  return SmemBytes(t) - used;
}

// ---------------------------------------------------------------- registers

// Keys whose scores a warp holds at once.
constexpr i32 StepRows(const TileShape& t) {
  switch (static_cast<KernelFamily>(t.family)) {
    case KernelFamily::kDecode:
      return Min(t.kv_rows, 32);
    case KernelFamily::kPrefill:
      // Fewer where accumulators are many, or where code exists twice.
      return Min(t.kv_rows / t.warps_kv, t.k_format == kAnyFormat ? 16
                                         : DimsPerWarp(t) > 128   ? 32
                                                                  : 64);
    default:
      return CeilDiv(t.kv_rows, t.warps_vo);
  }
}
// f32 accumulators of one consumer thread: scores of a step, running outputs.
constexpr i32 AccumulatorRegisters(const TileShape& t) {
  const i32 rows = RowsPerWarp(t);
  return (rows * StepRows(t) + rows * DimsPerWarp(t)) / kWarp;
}
// Fragments of Q, two 16-bit elements in a register, when they stay in registers.
constexpr i32 QueryRegisters(const TileShape& t) {
  return t.q_in_smem ? 0 : RowsPerWarp(t) * t.head_dim_qk / 2 / kWarp;
}

}  // namespace kvilt::contract
