// The key tile: transposed, so that a score is a lane.
//
//   tile[pair i][token t] = dword (k[t][2i], k[t][2i+1]) in bf16, head_dim padded to 32
//   of nvfp4 the e2m1 codes alone, and the scales apart: f32 [block][token t]
//
// Scales multiply sums of 16 products instead of each element: for a few query rows that is far
// less work, and for many it costs one multiply-add per 8 dot products.
#pragma once

#include "src/cpu/avx512/nvfp4.h"
#include "src/cpu/avx512/words.h"
#include "src/cpu/prefetch.h"

KVILT_AVX512_BEGIN
namespace kvilt::cpu::avx512 {

constexpr int Padded32(int head_dim) { return contract::RoundUp(head_dim, 32); }

inline void StoreDwords(u32* tile, int pair, int token, Vec v) {
  _mm512_store_si512(tile + pair * kTileKeys + token, v);
}

// rows[r] lane c -> tile lane r of pair first_pair + c.
inline void Transpose16(const Vec* rows, u32* tile, int first_pair, int token) {
  Vec a[16];
  Vec b[16];
  KVILT_UNROLL
  for (int i = 0; i < 16; i += 2) {
    a[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    a[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  KVILT_UNROLL
  for (int i = 0; i < 16; i += 4) {  // b[i + c]: dword c of each 128 bits, rows i .. i + 3.
    b[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
    b[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
    b[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
    b[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
  }
  KVILT_UNROLL
  for (int c = 0; c < 4; ++c) {
    const Vec low01 = _mm512_shuffle_i32x4(b[c], b[4 + c], 0x44);
    const Vec low23 = _mm512_shuffle_i32x4(b[8 + c], b[12 + c], 0x44);
    const Vec high01 = _mm512_shuffle_i32x4(b[c], b[4 + c], 0xEE);
    const Vec high23 = _mm512_shuffle_i32x4(b[8 + c], b[12 + c], 0xEE);
    StoreDwords(tile, first_pair + c, token, _mm512_shuffle_i32x4(low01, low23, 0x88));
    StoreDwords(tile, first_pair + 4 + c, token, _mm512_shuffle_i32x4(low01, low23, 0xDD));
    StoreDwords(tile, first_pair + 8 + c, token, _mm512_shuffle_i32x4(high01, high23, 0x88));
    StoreDwords(tile, first_pair + 12 + c, token, _mm512_shuffle_i32x4(high01, high23, 0xDD));
  }
}

template <class Rows>
void DecodeKeysByWords(const Rows& rows, const RowSource& source, int head_dim, u32* tile) {
  const int padded = Padded32(head_dim);
  for (int token = 0; token < kTileKeys; token += 16) {
    PrefetchAhead(source, token, 16);
    for (int dim = 0; dim < padded; dim += 64) {
      Vec first[16];
      Vec second[16];
      KVILT_UNROLL
      for (int t = 0; t < 16; ++t) {
        const Words words = rows.Load(token + t, dim);
        first[t] = words.first;
        second[t] = words.second;
      }
      Transpose16(first, tile, dim / 2, token);
      if (dim + 32 < padded) Transpose16(second, tile, dim / 2 + 16, token);
    }
  }
}

// ---------------------------------------------------------------- nvfp4

// Codes of 16 tokens x 64 dims, transposed: out[j] lane t = dword j (8 codes) of token t.
template <bool kFull>
inline void TransposeCodes(const RowSource& source, int token, int dim, Vec* out) {
  const int dwords = kFull ? 8 : contract::Min(8, (source.head_dim - dim) / 8);
  const __mmask8 low = static_cast<__mmask8>((1 << dwords) - 1);
  const auto load = [&](int t) __attribute__((always_inline)) {
    const u8* p = source.row(token + t) + dim / 2;
    return kFull ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))
                 : _mm256_maskz_loadu_epi32(low, p);
  };
  Vec lanes[2][4];
  KVILT_UNROLL
  for (int half = 0; half < 2; ++half) {
    Vec rows[4];
    KVILT_UNROLL
    for (int i = 0; i < 4; ++i) {  // Row i beside row i + 4.
      rows[i] =
          _mm512_inserti64x4(_mm512_castsi256_si512(load(8 * half + i)), load(8 * half + i + 4), 1);
    }
    const Vec a0 = _mm512_unpacklo_epi32(rows[0], rows[1]);
    const Vec a1 = _mm512_unpackhi_epi32(rows[0], rows[1]);
    const Vec a2 = _mm512_unpacklo_epi32(rows[2], rows[3]);
    const Vec a3 = _mm512_unpackhi_epi32(rows[2], rows[3]);
    lanes[half][0] = _mm512_unpacklo_epi64(a0, a2);
    lanes[half][1] = _mm512_unpackhi_epi64(a0, a2);
    lanes[half][2] = _mm512_unpacklo_epi64(a1, a3);
    lanes[half][3] = _mm512_unpackhi_epi64(a1, a3);
  }
  KVILT_UNROLL
  for (int c = 0; c < 4; ++c) {
    out[c] = _mm512_shuffle_i32x4(lanes[0][c], lanes[1][c], 0x88);
    out[4 + c] = _mm512_shuffle_i32x4(lanes[0][c], lanes[1][c], 0xDD);
  }
}

// Pair `index` (0..3) of a dword of 8 codes: the code of its first element to bits 0..3 of the low
// word, of the second to the high word; the bits above are of no account.
inline Vec PairControl(int index) {
  const long long first = 8 * index;
  const long long second = first + 4;
  const long long dword = first | second << 16;
  return _mm512_set1_epi64(dword | (dword + 0x00200020) << 32);
}

// Scales of 16 tokens x 4 blocks to f32, lane = token.
inline void StoreScales(const RowSource& source, const PlaneLookup& lookup, int token, int dim,
                        float* scales) {
  const int blocks = contract::Min(4, (source.head_dim - dim) / 16);
  const Vec bytes = LoadScaleBytes(source, token, dim / 16, blocks);
  const Vec low = lookup.Low(bytes);
  const Vec high = lookup.High(bytes);
  for (int b = 0; b < blocks; ++b) {
    // Byte b of both to the upper half of the dword: a bf16 is the upper half of an f32.
    const Vec shift = _mm512_set1_epi32(24 - 8 * b);
    const Vec top = _mm512_and_si512(_mm512_sllv_epi32(high, shift), _mm512_set1_epi32(-1 << 24));
    const Vec next = _mm512_and_si512(_mm512_sllv_epi32(low, shift), _mm512_set1_epi32(-1 << 24));
    _mm512_store_si512(scales + (dim / 16 + b) * kTileKeys + token,
                       _mm512_or_si512(top, _mm512_srli_epi32(next, 8)));
  }
}

template <bool kFull>
inline void DecodeCodes64(const RowSource& source, int token, int dim, u32* tile) {
  Vec codes[8];
  TransposeCodes<kFull>(source, token, dim, codes);
  const Vec table = _mm512_load_si512(kE2M1Words.data());
  const int dwords = kFull ? 8 : contract::Min(8, (source.head_dim - dim) / 8);
  for (int j = 0; j < dwords; ++j) {
    KVILT_UNROLL
    for (int i = 0; i < 4; ++i) {
      const Vec code = _mm512_multishift_epi64_epi8(PairControl(i), codes[j]);
      StoreDwords(tile, dim / 2 + 4 * j + i, token, _mm512_permutexvar_epi16(code, table));
    }
  }
}

inline void DecodeNvfp4Keys(const RowSource& source, int head_dim, u32* tile, float* scales) {
  const PlaneLookup lookup(kE4M3Planes);
  for (int token = 0; token < kTileKeys; token += 16) {
    PrefetchAhead(source, token, 16);
    int dim = 0;
    for (; dim + 64 <= head_dim; dim += 64) {
      StoreScales(source, lookup, token, dim, scales);
      DecodeCodes64<true>(source, token, dim, tile);
    }
    if (dim < head_dim) {
      StoreScales(source, lookup, token, dim, scales);
      DecodeCodes64<false>(source, token, dim, tile);
    }
  }
}

}  // namespace kvilt::cpu::avx512
KVILT_AVX512_END
