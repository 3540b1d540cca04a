// The number formats and the exact writers. The one place that knows them: docs/formats.md has the
// same in prose, SEMANTICS section 1 is the source of the formulas.
//
// Decoders and encoders are integer arithmetic on the bits, so they do not depend on the rounding
// or flush mode of the machine. The writers also use f32 products and quotients, each rounded to
// nearest even by itself: compile with -ffp-contract=off (--fmad=false --prec-div=true --ftz=false)
// and run with subnormals on (src/cpu/float_mode.h).
#pragma once

#include "types.h"

namespace kvilt::contract {

inline constexpr u32 kF32SignBit = 0x80000000u;
inline constexpr u32 kF32Infinity = 0x7F800000u;
inline constexpr u32 kF32MinNormal = 0x00800000u;
inline constexpr float kE4M3Max = 448.0f;
inline constexpr float kE5M2Max = 57344.0f;
inline constexpr float kE2M1Max = 6.0f;

constexpr u32 FloatBits(float x) { return __builtin_bit_cast(u32, x); }
constexpr float BitsFloat(u32 bits) { return __builtin_bit_cast(float, bits); }
constexpr u32 MagnitudeBits(float x) { return FloatBits(x) & ~kF32SignBit; }
constexpr float Magnitude(float x) { return BitsFloat(MagnitudeBits(x)); }
constexpr bool IsNan(float x) { return MagnitudeBits(x) > kF32Infinity; }
constexpr bool IsInfinite(float x) { return MagnitudeBits(x) == kF32Infinity; }

// Magnitudes below 2^-126 count as zero, with their sign.
constexpr float FlushInput(float x) {
  const u32 bits = FloatBits(x);
  return BitsFloat((bits & ~kF32SignBit) < kF32MinNormal ? bits & kF32SignBit : bits);
}

// ---------------------------------------------------------------- decoders

// Bits of an IEEE-like format with kManBits of mantissa and exponent bias kBias, without sign and
// without special values, as f32. Exact.
template <int kManBits, int kBias>
constexpr u32 WidenMagnitude(u32 magnitude) {
  constexpr float kSubnormalUnit = BitsFloat(static_cast<u32>(128 - kBias - kManBits) << 23);
  const u32 normal = (magnitude << (23 - kManBits)) + (static_cast<u32>(127 - kBias) << 23);
  const u32 subnormal = FloatBits(static_cast<float>(static_cast<i32>(magnitude)) * kSubnormalUnit);
  return magnitude < (1u << kManBits) ? subnormal : normal;
}

// Of the low four bits.
constexpr float DecodeE2M1(u32 code) {
  return BitsFloat(WidenMagnitude<1, 1>(code & 7u) | (code & 8u) << 28);
}

// 0x7F and 0xFF are NaN.
constexpr float DecodeE4M3(u8 byte) {
  const u32 magnitude = byte & 0x7Fu;
  const u32 wide = magnitude == 0x7Fu ? 0x7FC00000u : WidenMagnitude<3, 7>(magnitude);
  return BitsFloat(wide | (byte & 0x80u) << 24);
}

constexpr float DecodeF16(u16 half) {
  const u32 magnitude = half & 0x7FFFu;
  const u32 finite = WidenMagnitude<10, 15>(magnitude);
  const u32 special = kF32Infinity | (magnitude & 0x3FFu) << 13;
  return BitsFloat((magnitude >= 0x7C00u ? special : finite) | (half & 0x8000u) << 16);
}

constexpr float DecodeE5M2(u8 byte) { return DecodeF16(static_cast<u16>(byte << 8)); }

constexpr float DecodeBF16(u16 bits) { return BitsFloat(static_cast<u32>(bits) << 16); }

// ---------------------------------------------------------------- encoders

// Drops the low `shift` bits, nearest even. REQUIRES 1 <= shift <= 31, no overflow of the sum.
constexpr u32 ShiftNearestEven(u32 value, u32 shift) {
  return (value + (1u << (shift - 1)) - 1 + ((value >> shift) & 1u)) >> shift;
}

// The inverse of WidenMagnitude, nearest even. REQUIRES a finite magnitude; the caller handles
// results beyond the format's largest.
template <int kManBits, int kBias>
constexpr u32 NarrowMagnitude(u32 magnitude) {
  constexpr u32 kDrop = 23 - kManBits;
  constexpr u32 kMinNormalExponent = 128 - kBias;
  const u32 exponent = magnitude >> 23;
  const u32 normal =
      ShiftNearestEven(magnitude, kDrop) - (static_cast<u32>(127 - kBias) << kManBits);
  // In units of the smallest subnormal; from 31 bits on everything rounds to zero.
  const u32 short_of_normal = kMinNormalExponent - Min(exponent, kMinNormalExponent);
  const u32 shift = Min(kDrop + short_of_normal, 31u);
  const u32 subnormal = ShiftNearestEven((magnitude & 0x7FFFFFu) | 0x800000u, shift);
  return exponent >= kMinNormalExponent ? normal : subnormal;
}

// Nearest, ties to even: |y| <= 0.25 -> 0; < 0.75 -> 0.5; <= 1.25 -> 1; < 1.75 -> 1.5; <= 2.5 -> 2;
// < 3.5 -> 3; <= 5 -> 4; else 6. Bit 3 is the sign of y, of zeros too. NaN -> 0.
constexpr u32 EncodeE2M1(float y) {
  const u32 magnitude = MagnitudeBits(y);
  const u32 code = static_cast<u32>(magnitude > FloatBits(0.25f)) +
                   static_cast<u32>(magnitude >= FloatBits(0.75f)) +
                   static_cast<u32>(magnitude > FloatBits(1.25f)) +
                   static_cast<u32>(magnitude >= FloatBits(1.75f)) +
                   static_cast<u32>(magnitude > FloatBits(2.5f)) +
                   static_cast<u32>(magnitude >= FloatBits(3.5f)) +
                   static_cast<u32>(magnitude > FloatBits(5.0f));
  return magnitude > kF32Infinity ? 0u : code | FloatBits(y) >> 31 << 3;
}

// Nearest even; beyond the largest finite value, infinities included, saturates with its sign.
// NaN -> 0x7F in both.
constexpr u8 EncodeE4M3(float y) {
  const u32 magnitude = MagnitudeBits(y);
  const u32 finite = NarrowMagnitude<3, 7>(Min(magnitude, FloatBits(kE4M3Max)));
  const u32 code = finite | (FloatBits(y) >> 24 & 0x80u);
  return static_cast<u8>(magnitude > kF32Infinity ? 0x7Fu : code);
}
constexpr u8 EncodeE5M2(float y) {
  const u32 magnitude = MagnitudeBits(y);
  const u32 finite = NarrowMagnitude<2, 15>(Min(magnitude, FloatBits(kE5M2Max)));
  const u32 code = finite | (FloatBits(y) >> 24 & 0x80u);
  return static_cast<u8>(magnitude > kF32Infinity ? 0x7Fu : code);
}

// IEEE conversions, nearest even. Beyond the range -> infinity. A NaN keeps its sign and the upper
// bits of its payload and becomes quiet, as x86 does.
constexpr u16 EncodeF16(float y) {
  const u32 magnitude = MagnitudeBits(y);
  constexpr u32 kOverflow = FloatBits(65520.0f);  // The tie between 65504 and 65536 goes up.
  const u32 finite = NarrowMagnitude<10, 15>(Min(magnitude, kOverflow));
  const u32 nan = 0x7E00u | (magnitude >> 13 & 0x3FFu);
  const u32 code = magnitude > kF32Infinity ? nan : magnitude >= kOverflow ? 0x7C00u : finite;
  return static_cast<u16>(code | (FloatBits(y) >> 16 & 0x8000u));
}
constexpr u16 EncodeBF16(float y) {
  const u32 bits = FloatBits(y);
  const u32 nan = bits >> 16 | 0x40u;
  return static_cast<u16>(IsNan(y) ? nan : ShiftNearestEven(bits, 16));
}

// ---------------------------------------------------------------- writers

// What a writer stores before the conversion to the cache's format, for every dtype but NVFP4:
// x / global, one f32 quotient (exactly x when global is 1).
constexpr float StoredValue(float x, float global) {
  const float input = FlushInput(x);
  return global == 1.0f ? input : input / global;
}

// True for a stored value that the fp8 encoders clip. Infinities count, NaN does not.
constexpr bool ClipsE4M3(float y) { return MagnitudeBits(y) > FloatBits(kE4M3Max) && !IsNan(y); }
constexpr bool ClipsE5M2(float y) { return MagnitudeBits(y) > FloatBits(kE5M2Max) && !IsNan(y); }

inline constexpr int kNvfp4Block = 16;  // Elements that share a scale.
inline constexpr int kNvfp4BlockBytes = kNvfp4Block / 2;

// One written block. Element 2i is the low nibble of codes[i], 2i + 1 the high one.
struct Nvfp4Block {
  u8 scale = 0;  // e4m3
  u8 codes[kNvfp4BlockBytes] = {};
  u8 nan = 0;        // Elements.
  u8 infinite = 0;   // Elements.
  u8 saturated = 0;  // 1: amax / (6 global) > 448 (4 where four_over_six kept that candidate).
  u8 flushed = 0;    // 1: amax > 0 and scale == 0.
};

// Element codes (0..15) of flushed inputs under a scale.
constexpr void EncodeNvfp4Codes(const float* x, float scale, float global, u8* codes) {
  const float reciprocal = scale == 0.0f ? 0.0f : 1.0f / (scale * global);
  const u32 magnitude_mask = scale == 0.0f ? 0u : 7u;
  for (int i = 0; i < kNvfp4Block; ++i) {
    const u32 code = EncodeE2M1(x[i] * reciprocal);
    const u32 sign = IsNan(x[i]) ? 0u : FloatBits(x[i]) >> 31 << 3;
    codes[i] = static_cast<u8>((code & magnitude_mask) | sign);
  }
}

// sum of (x - (code * scale) * global)^2 by the tree i += i + 8, + 4, + 2, + 1.
constexpr float Nvfp4BlockError(const float* x, const u8* codes, float scale, float global) {
  float sums[kNvfp4Block] = {};
  for (int i = 0; i < kNvfp4Block; ++i) {
    const float error = x[i] - (DecodeE2M1(codes[i]) * scale) * global;
    sums[i] = error * error;
  }
  for (int half = kNvfp4Block / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

// Quantizes 16 consecutive head-dim elements of one token and head.
//   scale = e4m3(amax / (6 global)), code = e2m1(x * (1 / (scale global)))
// With `four_over_six` also the candidate amax / (4 global), kept only when its error is strictly
// smaller; a block with a NaN or an infinity has no such error and keeps the first. A NaN has code
// 0 and no part in amax; an infinity makes the scale 448 and its own code +-6.
constexpr Nvfp4Block EncodeNvfp4Block(const float* source, float global, bool four_over_six) {
  Nvfp4Block block;
  float x[kNvfp4Block] = {};
  u32 amax_bits = 0;
  u32 nan = 0;
  u32 infinite = 0;
  for (int i = 0; i < kNvfp4Block; ++i) {
    x[i] = FlushInput(source[i]);
    const u32 magnitude = MagnitudeBits(x[i]);
    amax_bits = Max(amax_bits, magnitude > kF32Infinity ? 0u : magnitude);
    nan += magnitude > kF32Infinity;
    infinite += magnitude == kF32Infinity;
  }
  const float amax = BitsFloat(amax_bits);
  float wanted = amax / (kE2M1Max * global);
  block.scale = EncodeE4M3(wanted);
  u8 codes[kNvfp4Block] = {};
  EncodeNvfp4Codes(x, DecodeE4M3(block.scale), global, codes);

  if (four_over_six && amax_bits != 0) {
    const float other_wanted = amax / (4.0f * global);
    const u8 other_scale = EncodeE4M3(other_wanted);
    u8 other[kNvfp4Block] = {};
    EncodeNvfp4Codes(x, DecodeE4M3(other_scale), global, other);
    if (Nvfp4BlockError(x, other, DecodeE4M3(other_scale), global) <
        Nvfp4BlockError(x, codes, DecodeE4M3(block.scale), global)) {
      wanted = other_wanted;
      block.scale = other_scale;
      for (int i = 0; i < kNvfp4Block; ++i) codes[i] = other[i];
    }
  }
  for (int i = 0; i < kNvfp4BlockBytes; ++i) {
    block.codes[i] = static_cast<u8>(codes[2 * i] | codes[2 * i + 1] << 4);
  }
  block.nan = static_cast<u8>(nan);
  block.infinite = static_cast<u8>(infinite);
  block.saturated = wanted > kE4M3Max;
  block.flushed = amax_bits != 0 && block.scale == 0;
  return block;
}

// ---------------------------------------------------------------- readers

// Dequantized elements before the output rounding; each product is rounded to f32.
constexpr float DequantizedNvfp4(u32 code, u8 scale, float global) {
  return (DecodeE2M1(code) * DecodeE4M3(scale)) * global;
}
constexpr float Dequantized(float stored, float global) { return stored * global; }

}  // namespace kvilt::contract
