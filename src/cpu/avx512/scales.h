// NVFP4 on the island: e2m1 codes as bf16, and the exact product with their e4m3 scales.
//
// A product e2m1 x e4m3 has at most 6 significant bits, so it is exact in bf16, and its f32 form
// ends in 16 zero bits. One vdpbf16ps against (scale, 0) gives the product of the low word, one
// against (0, scale) that of the high word.
#pragma once

#include "src/cpu/avx512/words.h"

KVILT_AVX512_BEGIN
namespace kvilt::cpu::avx512 {

// bf16 of the 16 codes, twice: vpermw reads five bits of its index and the fifth may be anything.
constexpr std::array<u16, 32> MakeE2M1Words() {
  std::array<u16, 32> words{};
  for (std::size_t i = 0; i < 32; ++i) {
    words[i] = contract::EncodeBF16(contract::DecodeE2M1(static_cast<u32>(i)));
  }
  return words;
}
alignas(64) inline constexpr std::array<u16, 32> kE2M1Table = MakeE2M1Words();
inline constexpr const u16* kE2M1Words = kE2M1Table.data();

// bf16 bits of all e4m3 bytes, zero-extended.
constexpr std::array<u32, 256> MakeE4M3Dwords() {
  std::array<u32, 256> dwords{};
  for (std::size_t i = 0; i < 256; ++i) {
    dwords[i] = contract::EncodeBF16(contract::DecodeE4M3(static_cast<u8>(i)));
  }
  return dwords;
}
alignas(64) inline constexpr std::array<u32, 256> kE4M3Dwords = MakeE4M3Dwords();

// (low * scale of `first`, high * scale of `second`), exact.
inline Vec ScaleWords(__m512bh words, __m512bh first, __m512bh second) {
  const Vec low = AsVec(_mm512_dpbf16_ps(_mm512_setzero_ps(), words, first));
  const Vec high = AsVec(_mm512_dpbf16_ps(_mm512_setzero_ps(), words, second));
  return _mm512_or_si512(_mm512_srli_epi32(low, 16), high);
}

// The scales of 16 tokens x 4 blocks as bf16 dwords, lane = token.
class BlockScales {
 public:
  BlockScales(const RowSource& source, const PlaneLookup& lookup, int token, int dim, bool full) {
    const Vec bytes = full ? Gather(source, token, dim) : Collect(source, token, dim);
    low_ = lookup.Low(bytes);
    high_ = lookup.High(bytes);
  }
  __m512bh First(int block) const { return AsBf16(Word(block)); }
  __m512bh Second(int block) const { return AsBf16(_mm512_slli_epi32(Word(block), 16)); }

 private:
  // Four bytes of each token; lane t = dword of token t.
  static Vec Gather(const RowSource& source, int token, int dim) {
    alignas(64) u32 dwords[16];
    for (int t = 0; t < 16; ++t) {
      __builtin_memcpy(dwords + t, source.scale_row(token + t) + dim / 16, 4);
    }
    return _mm512_load_si512(dwords);
  }
  // Fewer than four blocks are left in the row.
  static Vec Collect(const RowSource& source, int token, int dim) {
    alignas(64) u8 bytes[64] = {};
    for (int t = 0; t < 16; ++t) {
      for (int b = 0; b < contract::Min(4, (source.head_dim - dim) / 16); ++b) {
        bytes[4 * t + b] = source.scale_row(token + t)[dim / 16 + b];
      }
    }
    return _mm512_load_si512(bytes);
  }
  // (scale, 0) of block `block` in each dword.
  Vec Word(int block) const {
    const Vec shift = _mm512_set1_epi32(8 * block);
    const Vec low = _mm512_and_si512(_mm512_srlv_epi32(low_, shift), _mm512_set1_epi32(0xFF));
    const Vec high = _mm512_and_si512(_mm512_srlv_epi32(high_, shift), _mm512_set1_epi32(0xFF));
    return _mm512_or_si512(low, _mm512_slli_epi32(high, 8));
  }

  Vec low_;
  Vec high_;
};

}  // namespace kvilt::cpu::avx512
KVILT_AVX512_END
