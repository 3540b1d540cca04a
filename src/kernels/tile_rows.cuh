// The rows of an item's tile, and the query in shared memory.
//
//   spans of the item, one row block each:   | block 0: row x head | block 1 | ... | no row |
//   tile rows:                               0                                        q_rows
#pragma once

#include "attention_args.h"
#include "decode.cuh"
#include "operand_tile.h"
#include "query_row.h"
#include "rotate.cuh"
#include "simt.cuh"

namespace kvilt::kernels {

using contract::AttentionArgs;
using contract::AttentionParams;
using contract::PlanHeader;
using contract::QueryRow;
using contract::TileRow;
using contract::TileShape;

template <class T>
inline const T* PlanArray(const u8* plan, i64 offset) {
  return reinterpret_cast<const T*>(plan + offset);
}
inline const PlanHeader& Header(const AttentionArgs& args) {
  return *reinterpret_cast<const PlanHeader*>(args.plan);
}
inline const contract::RowBlock& BlockAt(const AttentionArgs& args, i32 block) {
  return PlanArray<contract::RowBlock>(args.plan, Header(args).blocks_offset)[block];
}
inline const contract::RequestInfo& RequestAt(const AttentionArgs& args, i32 request) {
  return PlanArray<contract::RequestInfo>(args.plan, Header(args).requests_offset)[request];
}

// A key count that an item's 32-bit offsets can hold.
inline i32 ToOffset(i64 keys) {
  constexpr i64 kFar = i64{1} << 30;
  return static_cast<i32>(contract::Max(-kFar, contract::Min(kFar, keys)));
}

// Fills row `index` of the item's tile.
inline TileRow MakeTileRow(const AttentionArgs& args, const contract::WorkItem& item, i32 index) {
  const AttentionParams& params = args.params;
  const auto* spans = PlanArray<contract::WorkSpan>(args.plan, Header(args).spans_offset);
  TileRow out;
  i64 rest = index;
  for (i32 s = item.span_begin; s < item.span_begin + item.span_count; ++s) {
    const contract::RowBlock& block = BlockAt(args, spans[s].block);
    if (rest >= block.vectors()) {
      rest -= block.vectors();
      continue;
    }
    const contract::RequestInfo& request = RequestAt(args, block.request);
    const i64 in_block = rest / block.q_head_count;
    const QueryRow row = contract::MakeQueryRow(params, request, block.row_begin + in_block);
    out.block = spans[s].block;
    out.split = spans[s].split;
    out.vector = static_cast<i32>(rest);
    out.q_row = static_cast<i32>(row.q_row);
    out.q_head = block.q_head_begin + static_cast<i32>(rest - in_block * block.q_head_count);
    const i64 end = contract::Min(row.visible.end, item.key_end) - item.key_begin;
    out.visible_begin = ToOffset(row.visible.begin - item.key_begin);
    out.visible_end = ToOffset(end);
    out.slope = contract::SlopeOf(params, out.q_head);
    const i64 anchor = contract::BiasAnchorOf(params, row, out.slope);
    out.anchor = ToOffset(anchor - item.key_begin);
    const bool tree = params.visibility.mask == static_cast<i32>(contract::Mask::kTree);
    const i64 first = tree ? request.kv_len - request.q_len : 0;
    const i64 bits_of_row = tree ? request.q_len : request.kv_len;
    out.mask_begin = ToOffset(first - item.key_begin);
    out.mask_bit = request.mask_byte_begin * 8 + row.row * bits_of_row + item.key_begin - first;
    break;
  }
  return out;
}

// Whether the bits of a custom or tree mask let the row see the key at offset `key`.
inline bool BitsAllow(const AttentionParams& params, const TileRow& row, i32 key) {
  return key < row.mask_begin || contract::MaskBit(params.mask_bits, row.mask_bit + key);
}

// ---------------------------------------------------------------- the query

// Elements [8 chunk, 8 chunk + 8) of a query row, as f32, rotated to `position` with RoPE.
template <bool kRotate>
inline void LoadQueryChunk(const AttentionParams& params, const u8* row, const u8* scales,
                           i64 position, i32 chunk, float (&values)[8]) {
  const bool bf16 = IsBF16(params.q_format);
  const bool half = bf16 || params.q_format == static_cast<i32>(Format::kF16);
  if (!kRotate && half && (reinterpret_cast<u64>(row) & 15) == 0) {
    u32 words[4];
    LoadFour(reinterpret_cast<const u32*>(row) + 4 * chunk, words);
    KVILT_UNROLLED
    for (i32 i = 0; i < 4; ++i) {
      values[2 * i] = bf16 ? LowOf<true>(words[i]) : LowOf<false>(words[i]);
      values[2 * i + 1] = bf16 ? HighOf<true>(words[i]) : HighOf<false>(words[i]);
    }
    return;
  }
  const auto element = [&](i32 i) { return DecodeElement(params.q_format, row, scales, i); };
  KVILT_UNROLLED
  for (i32 i = 0; i < 8; ++i) {
    values[i] =
        kRotate ? Rotated(params.rope, position, 8 * chunk + i, element) : element(8 * chunk + i);
  }
}

// The exponent that brings the largest of a row's magnitudes into [2^14, 2^15), so that f16 holds
// every bf16 element that matters beside it: what is lost is below 2^-39 of the largest.
inline i32 QueryExponent(float largest) {
  const u32 exponent = Bits(largest) >> 23;
  if (exponent == 0 || exponent == 255) return 0;  // Zeros, subnormals; infinities, NaN.
  return contract::Max(-126, contract::Min(126, 127 + 14 - static_cast<i32>(exponent)));
}

// The query row behind a tile row.
inline QueryRow QueryRowOf(const AttentionArgs& args, const TileRow& row) {
  const contract::RowBlock& block = BlockAt(args, row.block);
  return contract::MakeQueryRow(args.params, RequestAt(args, block.request),
                                block.row_begin + row.vector / block.q_head_count);
}

// Writes the query rows of the tile as q_parts operand tiles and sets each row's q_scale. All
// threads; needs a barrier before and after.
template <TileShape kTile, bool kBF16>
inline void LoadQuery(const AttentionArgs& args, TileRow* rows, u8* tile) {
  constexpr i32 kChunks = kTile.head_dim_qk / 8;
  constexpr i32 kPartBytes = kTile.q_rows * kTile.head_dim_qk * 2;
  constexpr bool kRotate = kTile.k_parts > 1;
  constexpr bool kReorder = !kRotate && IsReordered(kTile.k_format);
  const AttentionParams& params = args.params;
  const i32 lane = LaneIndex();
  KVILT_UNROLLED_BY(2)  // Rows' loads overlap.
  for (i32 r = WarpIndex(); r < kTile.q_rows; r += contract::Threads(kTile) / 32) {
    const TileRow row = rows[r];
    const u8* source = nullptr;
    const u8* scales = nullptr;
    i64 position = 0;
    if (row.block >= 0) {
      if constexpr (kRotate) position = QueryRowOf(args, row).position;
      source = params.q + i64{row.q_row} * params.q_row_stride + row.q_head * params.q_head_stride;
      scales = params.q_scales + i64{row.q_row} * params.q_scale_row_stride +
               row.q_head * params.q_scale_head_stride;
    }
    float largest = 0;
    if (!kBF16 && source != nullptr) {
      for (i32 chunk = lane; chunk < kChunks; chunk += 32) {
        float values[8];
        LoadQueryChunk<kRotate>(params, source, scales, position, chunk, values);
        KVILT_UNROLLED
        for (const float v : values) largest = MaxFloat(largest, contract::Magnitude(v));
      }
    }
    for (i32 mask = 16; mask > 0; mask /= 2) largest = MaxFloat(largest, ShuffleXor(largest, mask));
    const i32 exponent = kBF16 ? 0 : QueryExponent(largest);
    const float up = contract::ExactPow2(exponent);
    for (i32 chunk = lane; chunk < kChunks; chunk += 32) {
      float values[8] = {};
      if (source != nullptr) {
        LoadQueryChunk<kRotate>(params, source, scales, position, chunk, values);
      }
      u32* to = reinterpret_cast<u32*>(tile + contract::OperandChunk(r, chunk, kChunks) * 16);
      KVILT_UNROLLED
      for (i32 i = 0; i < 4; ++i) {
        const float low = values[kReorder ? ReorderedElement(2 * i) : 2 * i] * up;
        const float high = values[kReorder ? ReorderedElement(2 * i + 1) : 2 * i + 1] * up;
        const u32 pair = Pack<kBF16>(low, high);
        to[i] = pair;
        if constexpr (kTile.q_parts > 1) {
          to[i + kPartBytes / 4] =
              Pack<kBF16>(low - LowOf<kBF16>(pair), high - HighOf<kBF16>(pair));
        }
      }
    }
    if (lane == 0) rows[r].q_scale = contract::ExactPow2(-exponent);
  }
}

}  // namespace kvilt::kernels
