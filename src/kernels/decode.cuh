// Cache elements to the 16-bit operands of the MMAs, exactly.
//
// Everything but bf16 becomes f16. NVFP4 comes out as 2^-14 of its value: an e2m1 code shifted into
// the exponent of an f16 is 2^-14 of what it means, subnormals included, and its product with an
// e4m3 scale, a multiple of 2^-24, fits. OperandScale says what to multiply results by.
#pragma once

#include "attention_params.h"
#include "formats.h"
#include "simt.cuh"

namespace kvilt::kernels {

using contract::Format;
using namespace simt;  // NOLINT: the machine's words.

// Whether elements of this format meet their partner in a bf16 MMA.
constexpr bool IsBF16(i32 format) { return format == static_cast<i32>(Format::kBF16); }

constexpr float OperandScale(i32 format) {
  return format == static_cast<i32>(Format::kNVFP4) ? 16384.0f : 1.0f;
}

// Two e4m3 bytes (low half) to an f16 pair.
inline u32 WidenE4M3(u32 bytes) {
  if constexpr (kNativeFp8) {
    return F16FromE4M3(bytes);
  } else {
    // In an f16's fields a byte is 2^-8 of its value; 0x7F, the NaN, has to be made one.
    const u32 spread = Permute(bytes, 0, 0x1404);  // b0 -> bits 8..15, b1 -> bits 24..31.
    const u32 half = (spread & 0x80008000u) | ((spread >> 1) & 0x3F803F80u);
    u32 pair = MultiplyF16(half, 0x5C005C00u);  // 2^8
    if ((bytes & 0x7Fu) == 0x7Fu) pair = (pair & 0xFFFF0000u) | 0x7E00u;
    if ((bytes & 0x7F00u) == 0x7F00u) pair = (pair & 0x0000FFFFu) | 0x7E000000u;
    return pair;
  }
}

// The order of eight elements in an operand chunk of decoded codes: all even ones, then all odd
// ones, as they come out of their bytes. Operands of Q and columns of the output follow it.
constexpr bool IsReordered(i32 format) { return format == static_cast<i32>(Format::kNVFP4); }
constexpr i32 ReorderedElement(i32 place) { return place < 4 ? 2 * place : 2 * place - 7; }

// Eight codes, element 2i in the low nibble of byte i, times `scale` (an f16 pair of two equal
// halves), 2^-14 of their value each; in order, or reordered, which takes four instructions less.
template <bool kReorder>
inline void DecodeCodes(u32 codes, u32 scale, u32 (&pair)[4]) {
  const u32 even = (codes << 4 & 0x80808080u) | (codes << 1 & 0x0E0E0E0Eu);
  const u32 odd = (codes & 0x80808080u) | (codes >> 3 & 0x0E0E0E0Eu);
  if constexpr (kReorder) {
    pair[0] = MultiplyF16(Permute(even, 0, 0x1404), scale);
    pair[1] = MultiplyF16(Permute(even, 0, 0x3424), scale);
    pair[2] = MultiplyF16(Permute(odd, 0, 0x1404), scale);
    pair[3] = MultiplyF16(Permute(odd, 0, 0x3424), scale);
    return;
  }
  pair[0] = MultiplyF16(Permute(even, odd, 0x4400) & 0xFF00FF00u, scale);
  pair[1] = MultiplyF16(Permute(even, odd, 0x5511) & 0xFF00FF00u, scale);
  pair[2] = MultiplyF16(Permute(even, odd, 0x6622) & 0xFF00FF00u, scale);
  pair[3] = MultiplyF16(Permute(even, odd, 0x7733) & 0xFF00FF00u, scale);
}

// A block of 16 elements, `codes` in shared memory and aligned to what the format's block measures
// (8 bytes and more), to eight pairs. `scale`: its e4m3 byte, kNVFP4 only.
template <bool kReorder>
inline void DecodeBlock(i32 format, const u8* codes, u32 scale, u32 (&pairs)[8]) {
  const u32* words = reinterpret_cast<const u32*>(codes);
  switch (static_cast<Format>(format)) {
    case Format::kNVFP4: {
      const u32 scales = WidenE4M3(scale | scale << 8);
      u32 low[4], high[4];
      DecodeCodes<kReorder>(words[0], scales, low);
      DecodeCodes<kReorder>(words[1], scales, high);
      KVILT_UNROLLED
      for (i32 i = 0; i < 4; ++i) {
        pairs[i] = low[i];
        pairs[4 + i] = high[i];
      }
      break;
    }
    case Format::kE4M3:
      KVILT_UNROLLED
      for (i32 i = 0; i < 4; ++i) {
        pairs[2 * i] = WidenE4M3(words[i] & 0xFFFFu);
        pairs[2 * i + 1] = WidenE4M3(words[i] >> 16);
      }
      break;
    case Format::kE5M2:  // The upper byte of an f16.
      KVILT_UNROLLED
      for (i32 i = 0; i < 4; ++i) {
        pairs[2 * i] = Permute(words[i], 0, 0x1404);
        pairs[2 * i + 1] = Permute(words[i], 0, 0x3424);
      }
      break;
    default:
      KVILT_UNROLLED
      for (i32 i = 0; i < 8; ++i) pairs[i] = words[i];
      break;
  }
}

// One element of a row as f32, for what is done element by element. `scales`: kNVFP4 only.
inline float DecodeElement(i32 format, const u8* row, const u8* scales, i32 i) {
  switch (static_cast<Format>(format)) {
    case Format::kBF16:
    case Format::kF16: {
      const u16 bits = static_cast<u16>(row[2 * i] | row[2 * i + 1] << 8);
      return IsBF16(format) ? contract::DecodeBF16(bits) : contract::DecodeF16(bits);
    }
    case Format::kE4M3:
      return contract::DecodeE4M3(row[i]);
    case Format::kE5M2:
      return contract::DecodeE5M2(row[i]);
    default: {
      const u32 code = (static_cast<u32>(row[i / 2]) >> (i % 2 * 4)) & 15u;
      return contract::DecodeE2M1(code) * contract::DecodeE4M3(scales[i / 16]);
    }
  }
}

// Pairs of an MMA's type, and back.
template <bool kBF16>
inline u32 Pack(float low, float high) {
  return kBF16 ? PackBF16(low, high) : PackF16(low, high);
}
template <bool kBF16>
inline float LowOf(u32 pair) {
  return kBF16 ? FloatOf(pair << 16) : LowF16(pair);
}
template <bool kBF16>
inline float HighOf(u32 pair) {
  return kBF16 ? FloatOf(pair & 0xFFFF0000u) : HighF16(pair);
}
template <bool kBF16>
inline void Mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  if constexpr (kBF16) {
    MmaBF16(d, a, b0, b1);
  } else {
    MmaF16(d, a, b0, b1);
  }
}

}  // namespace kvilt::kernels
