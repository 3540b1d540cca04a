// The value tile: pairs of tokens, so that one vdpbf16ps adds two keys.
//
//   tile[token pair p][dim] = dword (v[2p][dim], v[2p+1][dim]) in bf16, head_dim padded to 32
//   inside 16 dims the order is 0 8 1 9 .. 7 15, here and in the output rows
//
// nvfp4 values are multiplied with their scales: e2m1 x e4m3 has at most 6 significant bits, so the
// product is exact in bf16.
#pragma once

#include "src/cpu/avx512/keys.h"
#include "src/cpu/decode_tables.h"

KVILT_AVX512_BEGIN
namespace kvilt::cpu::avx512 {

// Where word w of 32 dims goes before the blend of StoreTokenPair: even words hold the first 16
// dims, odd words the second, each in tile order.
inline Vec TileOrder() {
  alignas(64) static constexpr std::array<u16, 32> kOrder = [] {
    std::array<u16, 32> order{};
    for (std::size_t w = 0; w < 32; ++w) {
      const std::size_t lane = w / 2;
      order[w] = static_cast<u16>(w % 2 * 16 + lane % 2 * 8 + lane / 2);
    }
    return order;
  }();
  return _mm512_load_si512(kOrder.data());
}

// 32 words of tokens t and t + 1, in order, to the dwords of 32 dims.
inline void StoreTokenPair(u32* tile, Vec order, Vec first, Vec second) {
  constexpr __mmask32 kHighWords = 0xAAAAAAAA;
  const Vec a = _mm512_permutexvar_epi16(order, first);
  const Vec b = _mm512_permutexvar_epi16(order, second);
  _mm512_store_si512(tile, _mm512_mask_blend_epi16(kHighWords, a, _mm512_slli_epi32(b, 16)));
  _mm512_store_si512(tile + 16, _mm512_mask_blend_epi16(kHighWords, _mm512_srli_epi32(a, 16), b));
}

template <class Rows>
void DecodeValuesByWords(const Rows& rows, const RowSource& source, int head_dim, u32* tile) {
  const int padded = Padded32(head_dim);
  const Vec order = TileOrder();
  for (int token = 0; token < kTileKeys; token += 2) {
    PrefetchAhead(source, token, 2);
    u32* pair = tile + token / 2 * padded;
    for (int dim = 0; dim < padded; dim += 64) {
      const Words a = rows.Load(token, dim);
      const Words b = rows.Load(token + 1, dim);
      StoreTokenPair(pair + dim, order, a.first, b.first);
      if (dim + 32 < padded) StoreTokenPair(pair + dim + 32, order, a.second, b.second);
    }
  }
}

// One block of two tokens. The table of a token is e2m1 times its scale; the first token's is
// shifted down, so that the two looked-up halves only need an OR.
inline Vec ScaledPair(const u8* first_codes, const u8* second_codes, float first_scale,
                      float second_scale, __m512 table, Vec shifts) {
  long long first;
  long long second;
  __builtin_memcpy(&first, first_codes, 8);
  __builtin_memcpy(&second, second_codes, 8);
  // Even lanes see the low dword (dims 0..7), odd lanes the high one.
  const Vec first_index = _mm512_srlv_epi32(_mm512_set1_epi64(first), shifts);
  const Vec second_index = _mm512_srlv_epi32(_mm512_set1_epi64(second), shifts);
  const Vec first_table =
      _mm512_srli_epi32(AsVec(_mm512_mul_ps(table, _mm512_set1_ps(first_scale))), 16);
  const Vec second_table = AsVec(_mm512_mul_ps(table, _mm512_set1_ps(second_scale)));
  return _mm512_or_si512(_mm512_permutexvar_epi32(first_index, first_table),
                         _mm512_permutexvar_epi32(second_index, second_table));
}

inline void DecodeNvfp4Values(const RowSource& source, int head_dim, u32* tile) {
  const int padded = Padded32(head_dim);
  const __m512 table = _mm512_load_ps(kE2M1Floats.data());
  const Vec shifts = _mm512_setr_epi32(0, 0, 4, 4, 8, 8, 12, 12, 16, 16, 20, 20, 24, 24, 28, 28);
  for (int token = 0; token < kTileKeys; token += 2) {
    PrefetchAhead(source, token, 2);
    u32* pair = tile + token / 2 * padded;
    const u8* first = source.row(token);
    const u8* second = source.row(token + 1);
    const u8* first_scales = source.scale_row(token);
    const u8* second_scales = source.scale_row(token + 1);
    for (int block = 0; block < head_dim / 16; ++block) {
      _mm512_store_si512(
          pair + block * 16,
          ScaledPair(first + block * 8, second + block * 8, kE4M3Values[first_scales[block]],
                     kE4M3Values[second_scales[block]], table, shifts));
    }
    if (head_dim < padded) _mm512_store_si512(pair + head_dim, _mm512_setzero_si512());
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
