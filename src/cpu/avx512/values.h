// The value tile: pairs of tokens, so that one vdpbf16ps adds two keys.
//
//   tile[token pair p][dim] = dword (v[2p][dim], v[2p+1][dim]) in bf16, head_dim padded to 32
//   inside 32 dims the order is 0 2 4 .. 30, 1 3 .. 31, here and in the output rows
#pragma once

#include "src/cpu/avx512/keys.h"

KVILT_AVX512_BEGIN
namespace kvilt::cpu::avx512 {

// Words of tokens t and t + 1 to the dwords of 32 dims.
inline void StoreTokenPair(u32* tile, Vec first, Vec second) {
  constexpr __mmask32 kHighWords = 0xAAAAAAAA;
  _mm512_store_si512(tile,
                     _mm512_mask_blend_epi16(kHighWords, first, _mm512_slli_epi32(second, 16)));
  _mm512_store_si512(tile + 16,
                     _mm512_mask_blend_epi16(kHighWords, _mm512_srli_epi32(first, 16), second));
}

template <class Rows>
void DecodeValuesByWords(const Rows& rows, const RowSource& source, int head_dim, u32* tile) {
  const int padded = Padded32(head_dim);
  for (int token = 0; token < kTileKeys; token += 2) {
    PrefetchAhead(source, token, 2);
    u32* pair = tile + token / 2 * padded;
    for (int dim = 0; dim < padded; dim += 64) {
      const Words a = rows.Load(token, dim);
      const Words b = rows.Load(token + 1, dim);
      StoreTokenPair(pair + dim, a.first, b.first);
      if (dim + 32 < padded) StoreTokenPair(pair + dim + 32, a.second, b.second);
    }
  }
}

// ---------------------------------------------------------------- nvfp4

// Scales of a token pair for 32 dims: lanes 0..7 (dims 0..15) and 8..15 (dims 16..31).
struct PairScales {
  __m512bh first;   // (scale of token 2p, 0)
  __m512bh second;  // (0, scale of token 2p + 1)
};

// bf16 scales of the whole tile, [token][block] dwords (scale, 0).
inline void WidenScales(const RowSource& source, u32* scales) {
  const int blocks = source.head_dim / 16;
  for (int t = 0; t < kTileKeys; ++t) {
    const u8* row = source.scale_row(t);
    for (int b = 0; b < blocks; ++b) scales[t * blocks + b] = kE4M3Dwords[row[b]];
  }
}

inline PairScales LoadPairScales(const u32* first, const u32* second, bool two_blocks) {
  constexpr __mmask16 kSecondBlock = 0xFF00;
  const int next = two_blocks ? 1 : 0;
  const Vec a = _mm512_mask_set1_epi32(_mm512_set1_epi32(static_cast<int>(first[0])), kSecondBlock,
                                       static_cast<int>(first[next]));
  const Vec b = _mm512_mask_set1_epi32(_mm512_set1_epi32(static_cast<int>(second[0])), kSecondBlock,
                                       static_cast<int>(second[next]));
  return {AsBf16(a), AsBf16(_mm512_slli_epi32(b, 16))};
}

inline void DecodeNvfp4Values(const RowSource& source, int head_dim, u32* tile) {
  const int padded = Padded32(head_dim);
  const int blocks = head_dim / 16;
  alignas(64) u32 scales[kTileKeys * (kMaxHeadDim / 16)];
  WidenScales(source, scales);
  const Vec table = _mm512_load_si512(kE2M1Words);
  // Byte l of the first 16, byte l of the second 16 to the words of dword l.
  const Vec lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const Vec spread =
      _mm512_or_si512(lane, _mm512_slli_epi32(_mm512_add_epi32(lane, _mm512_set1_epi32(16)), 16));
  for (int token = 0; token < kTileKeys; token += 2) {
    PrefetchAhead(source, token, 2);
    u32* pair = tile + token / 2 * padded;
    const u8* first = source.row(token);
    const u8* second = source.row(token + 1);
    for (int dim = 0; dim < head_dim; dim += 32) {
      const bool two_blocks = dim + 32 <= head_dim;
      const __mmask16 bytes = two_blocks ? 0xFFFF : 0x00FF;
      const __m128i a = _mm_maskz_loadu_epi8(bytes, first + dim / 2);
      const __m128i b = _mm_maskz_loadu_epi8(bytes, second + dim / 2);
      const Vec both =
          _mm512_castsi256_si512(_mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1));
      const Vec codes = _mm512_permutexvar_epi8(spread, both);
      const PairScales scale = LoadPairScales(scales + token * blocks + dim / 16,
                                              scales + (token + 1) * blocks + dim / 16, two_blocks);
      const Vec even = _mm512_permutexvar_epi16(codes, table);
      const Vec odd = _mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 4), table);
      _mm512_store_si512(pair + dim, ScaleWords(AsBf16(even), scale.first, scale.second));
      _mm512_store_si512(pair + dim + 16, ScaleWords(AsBf16(odd), scale.first, scale.second));
    }
  }
}

inline bool TileIsFinite(int head_dim, const u32* tile) {
  const Vec exponent = _mm512_set1_epi16(0x7F80);
  __mmask32 bad = 0;
  for (int i = 0; i < kTileKeys / 2 * Padded32(head_dim); i += 16) {
    const Vec words = _mm512_load_si512(tile + i);
    bad |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(words, exponent), exponent);
  }
  return bad == 0;
}

}  // namespace kvilt::cpu::avx512
KVILT_AVX512_END
