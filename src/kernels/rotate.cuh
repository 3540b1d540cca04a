// RoPE of keys and queries inside the kernel: rotated in f32 and stored as two bf16 summands, which
// keeps 16 bits of each element (an error of q.k below 2^-16 |q| |k|).
#pragma once

#include "attention_params.h"
#include "decode.cuh"
#include "operand_tile.h"
#include "simt.cuh"
#include "tile_shape.h"

namespace kvilt::kernels {

using contract::AttentionParams;
using contract::RopeParams;
using contract::TileShape;

// cos and sin of position * frequency. The product and its remainder in f64: at position 10^6 an
// f32 angle would be off by 0.06.
inline void AngleOf(const RopeParams& rope, i64 position, i32 pair, float& cosine, float& sine) {
  constexpr double kTurn = 6.283185307179586476925;
  const double angle = static_cast<double>(position) * rope.frequencies[pair];
  const double turns = RoundToEven(angle / kTurn);
  SinCos(static_cast<float>(FmaDouble(-turns, kTurn, angle)), sine, cosine);
}

// Element i of a rotated row; `element(i)` gives those of the row as it is.
template <class Element>
inline float Rotated(const RopeParams& rope, i64 position, i32 i, Element&& element) {
  if (i >= rope.rotary_dim) return element(i);
  const i32 half = rope.rotary_dim / 2;
  const bool second = rope.interleaved ? i % 2 != 0 : i >= half;
  const i32 pair = rope.interleaved ? i / 2 : (second ? i - half : i);
  const i32 partner = rope.interleaved ? i ^ 1 : (second ? i - half : i + half);
  float cosine, sine;
  AngleOf(rope, position, pair, cosine, sine);
  const float other = element(partner);
  return element(i) * cosine + (second ? other * sine : -other * sine);
}

// Eight f32 values as a chunk of each summand's tile.
inline void StoreParts(const float (&values)[8], u8* to, i32 part_bytes) {
  KVILT_UNROLLED
  for (i32 i = 0; i < 4; ++i) {
    const float low = values[2 * i], high = values[2 * i + 1];
    const u32 pair = PackBF16(low, high);
    reinterpret_cast<u32*>(to)[i] = pair;
    reinterpret_cast<u32*>(to + part_bytes)[i] =
        PackBF16(low - LowOf<true>(pair), high - HighOf<true>(pair));
  }
}

// Decodes and rotates a stage of keys [key_begin, ...) into two operand tiles. Keys from key_end on
// are zeros in the ring and stay so.
template <TileShape kTile>
inline void RotateKeys(const AttentionParams& params, i32 format, const u8* codes, const u8* scales,
                       i64 key_begin, i64 key_end, i64 position_begin, u8* operand) {
  constexpr i32 kDim = kTile.head_dim_qk;
  constexpr i32 kChunks = kDim / 8;
  constexpr i32 kPartBytes = kTile.kv_rows * kDim * 2;
  constexpr bool kAny = kTile.k_format == contract::kAnyFormat;
  const i32 row_bytes = contract::CodeBytes(kTile.k_format, kDim);
  const RopeParams& rope = params.rope;
  for (i32 i = ThreadIndex(); i < kTile.kv_rows * kChunks; i += contract::Threads(kTile)) {
    const i32 key = i / kChunks;
    const i32 chunk = i - key * kChunks;
    const u8* const row = codes + key * row_bytes;
    const u8* const row_scales = scales + key * (kDim / 16);
    const auto element = [&](i32 e) {
      return DecodeElement(kAny ? format : kTile.k_format, row, row_scales, e);
    };
    float values[8] = {};
    const i64 j = key_begin + key;
    if (j < key_end) {
      const i64 position = rope.key_positions == nullptr
                               ? j
                               : contract::LoadIndex(rope.key_positions, rope.key_position_is_i64,
                                                     position_begin + j);
      for (i32 e = 0; e < 8; ++e) values[e] = Rotated(rope, position, 8 * chunk + e, element);
    }
    StoreParts(values, operand + contract::OperandChunk(key, chunk, kChunks) * 16, kPartBytes);
  }
}

}  // namespace kvilt::kernels
