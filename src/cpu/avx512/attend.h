// Scores, softmax and values of a block of query rows against one tile.
//
//   scores   kRows x 64 keys in registers, over pairs of dims: 4 key vectors, kRows broadcasts
//   softmax  per row; P rounded to bf16 (near_exact: and what is left, in bf16 too); weights are
//            summed as rounded, for out, and in f32, for lse
//   values   kRows x 64 dims in registers, over pairs of keys: 4 value vectors, kRows broadcasts
//
// A row's operations do not depend on kRows.
#pragma once

#include "src/contract/softmax.h"
#include "src/cpu/avx512/values.h"
#include "src/cpu/f32/body.h"

KVILT_AVX512_BEGIN
namespace kvilt::cpu::avx512 {

// 24 accumulators, 4 operands and a broadcast fit 32 registers.
inline constexpr int kMaxBlockRows = 6;

// How the products of a launch are made.
struct ScoreForm {
  int pairs = 0;             // Dwords of one part of a query row, and rows of a key tile.
  int blocks = 0;            // nvfp4 keys: scaled blocks of 16 dims. Else 0.
  bool two_queries = false;  // q is the sum of two bf16 numbers.
};
inline ScoreForm FormOf(const TileJob& job) {
  const BodyConfig& config = *job.config;
  const bool scaled = job.key_format == Format::kNVFP4;
  return {Padded32(config.head_dim_qk) / 2, scaled ? config.head_dim_qk / 16 : 0,
          !config.q_is_bf16_exact};
}
inline float* KeyScales(const BodyConfig& config, u32* key_tile) {
  return reinterpret_cast<float*>(key_tile + Padded32(config.head_dim_qk) / 2 * kTileKeys);
}

template <int kRows>
struct RowBlock {
  const u32* queries[kRows];
  float* outputs[kRows];
  float factors[kRows];
  alignas(64) float scores[kRows][kTileKeys];
  alignas(64) u32 weights[2][kRows][kTileKeys / 2];  // bf16 pairs of P, and its rest.
};

inline __m512bh Broadcast(u32 dword) { return AsBf16(_mm512_set1_epi32(static_cast<int>(dword))); }

// sums[r][c] += sum over pairs of q[r][pair] . k[pair][16 keys]
template <int kRows, bool kTwoQueries>
inline void AddScores(const u32* const* queries, int pairs, const u32* keys,
                      __m512 (&sums)[kRows][4]) {
  for (int i = 0; i < pairs; ++i) {
    const __m512bh k0 = AsBf16(_mm512_load_si512(keys + i * kTileKeys));
    const __m512bh k1 = AsBf16(_mm512_load_si512(keys + i * kTileKeys + 16));
    const __m512bh k2 = AsBf16(_mm512_load_si512(keys + i * kTileKeys + 32));
    const __m512bh k3 = AsBf16(_mm512_load_si512(keys + i * kTileKeys + 48));
    KVILT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const __m512bh q = Broadcast(queries[r][i]);
      sums[r][0] = _mm512_dpbf16_ps(sums[r][0], q, k0);
      sums[r][1] = _mm512_dpbf16_ps(sums[r][1], q, k1);
      sums[r][2] = _mm512_dpbf16_ps(sums[r][2], q, k2);
      sums[r][3] = _mm512_dpbf16_ps(sums[r][3], q, k3);
      if constexpr (kTwoQueries) {
        const __m512bh rest = Broadcast(queries[r][pairs + i]);
        sums[r][0] = _mm512_dpbf16_ps(sums[r][0], rest, k0);
        sums[r][1] = _mm512_dpbf16_ps(sums[r][1], rest, k1);
        sums[r][2] = _mm512_dpbf16_ps(sums[r][2], rest, k2);
        sums[r][3] = _mm512_dpbf16_ps(sums[r][3], rest, k3);
      }
    }
  }
}

template <int kRows>
inline void PlainScores(const ScoreForm& form, const u32* keys, RowBlock<kRows>& block) {
  __m512 sums[kRows][4];
  KVILT_UNROLL
  for (int r = 0; r < kRows; ++r) {
    KVILT_UNROLL
    for (int c = 0; c < 4; ++c) sums[r][c] = _mm512_setzero_ps();
  }
  if (form.two_queries) {
    AddScores<kRows, true>(block.queries, form.pairs, keys, sums);
  } else {
    AddScores<kRows, false>(block.queries, form.pairs, keys, sums);
  }
  KVILT_UNROLL
  for (int r = 0; r < kRows; ++r) {
    KVILT_UNROLL
    for (int c = 0; c < 4; ++c) _mm512_store_ps(block.scores[r] + 16 * c, sums[r][c]);
  }
}

// Scores of 32 keys: for each block of 16 dims, its sum times the keys' scales.
template <int kRows, bool kTwoQueries>
inline void BlockScores(const ScoreForm& form, const u32* keys, const float* scales, int key,
                        RowBlock<kRows>& block) {
  __m512 sums[kRows][2];
  KVILT_UNROLL
  for (int r = 0; r < kRows; ++r) sums[r][0] = sums[r][1] = _mm512_setzero_ps();
  for (int b = 0; b < form.blocks; ++b) {
    __m512 part[kRows][2];
    KVILT_UNROLL
    for (int r = 0; r < kRows; ++r) part[r][0] = part[r][1] = _mm512_setzero_ps();
    KVILT_UNROLL
    for (int i = 0; i < 8; ++i) {
      const int pair = 8 * b + i;
      const __m512bh k0 = AsBf16(_mm512_load_si512(keys + pair * kTileKeys + key));
      const __m512bh k1 = AsBf16(_mm512_load_si512(keys + pair * kTileKeys + key + 16));
      KVILT_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const __m512bh q = Broadcast(block.queries[r][pair]);
        part[r][0] = _mm512_dpbf16_ps(part[r][0], k0, q);
        part[r][1] = _mm512_dpbf16_ps(part[r][1], k1, q);
        if constexpr (kTwoQueries) {
          const __m512bh rest = Broadcast(block.queries[r][form.pairs + pair]);
          part[r][0] = _mm512_dpbf16_ps(part[r][0], k0, rest);
          part[r][1] = _mm512_dpbf16_ps(part[r][1], k1, rest);
        }
      }
    }
    const __m512 s0 = _mm512_load_ps(scales + b * kTileKeys + key);
    const __m512 s1 = _mm512_load_ps(scales + b * kTileKeys + key + 16);
    KVILT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      sums[r][0] = _mm512_fmadd_ps(part[r][0], s0, sums[r][0]);
      sums[r][1] = _mm512_fmadd_ps(part[r][1], s1, sums[r][1]);
    }
  }
  KVILT_UNROLL
  for (int r = 0; r < kRows; ++r) {
    _mm512_store_ps(block.scores[r] + key, sums[r][0]);
    _mm512_store_ps(block.scores[r] + key + 16, sums[r][1]);
  }
}

template <int kRows>
inline void Scores(const TileJob& job, RowBlock<kRows>& block) {
  const ScoreForm form = FormOf(job);
  const u32* keys = static_cast<const u32*>(job.key_tile);
  if (form.blocks == 0) {
    PlainScores<kRows>(form, keys, block);
    return;
  }
  const float* scales = reinterpret_cast<const float*>(keys + form.pairs * kTileKeys);
  for (int key = 0; key < kTileKeys; key += 32) {
    if (form.two_queries) {
      BlockScores<kRows, true>(form, keys, scales, key, block);
    } else {
      BlockScores<kRows, false>(form, keys, scales, key, block);
    }
  }
}

// 2^(x - reference); 0 below about 2^-126, NaN for NaN. REQUIRES an integer reference >= x.
// Cephes' polynomial on [-1/2, 1/2]. x is parted into integer and fraction before the reference
// goes off, both exactly, so that the bits of the result differ between references by a power of
// two only: a split does not change how weights round to bf16.
inline __m512 Exp2Against(__m512 x, __m512 reference) {
  const __m512 whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 gap = _mm512_sub_ps(whole, reference);
  // From -125 on, since the polynomial may lie below 1.
  const __mmask16 in_range = _mm512_cmp_ps_mask(gap, _mm512_set1_ps(-125.0f), _CMP_NLT_UQ);
  const __m512 f = _mm512_sub_ps(x, whole);
  __m512 p = _mm512_set1_ps(1.535336188319500e-4f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.339887440266574e-3f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.618437357674640e-3f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.550332471162809e-2f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.402264791363012e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.931472028550421e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
  // A NaN converts to the integer indefinite, whose shift is 0.
  const Vec exponent = _mm512_slli_epi32(_mm512_cvtps_epi32(gap), 23);
  return AsFloat(_mm512_maskz_add_epi32(in_range, AsVec(p), exponent));
}

// Scores times `scale` = logits in the log2 domain; see contract/softmax.h. Returns the factor for
// the row's output.
template <bool kNearExact>
inline float SoftmaxRow(float scale, u64 visible, const float* scores, float* state, u32* weights,
                        u32* rest) {
  const __m512 minus_infinity = _mm512_set1_ps(-__builtin_inff());
  const __m512 factor = _mm512_set1_ps(scale);
  __m512 x[4];
  KVILT_UNROLL
  for (int c = 0; c < 4; ++c) {
    const __mmask16 lanes = static_cast<__mmask16>(visible >> (16 * c));
    x[c] = _mm512_mask_mul_ps(minus_infinity, lanes, _mm512_load_ps(scores + 16 * c), factor);
  }
  // max(a, b) is b when one is NaN: a NaN in x does not count here, but as P below.
  __m512 top = _mm512_max_ps(x[0], minus_infinity);
  KVILT_UNROLL
  for (int c = 1; c < 4; ++c) top = _mm512_max_ps(x[c], top);
  const float tile_reference = __builtin_ceilf(_mm512_reduce_max_ps(top));
  const float reference = contract::Max(state[contract::kStateReference], tile_reference);
  const __m512 shift = _mm512_set1_ps(reference == -__builtin_inff() ? 0.0f : reference);
  const __m512bh ones = AsBf16(_mm512_set1_epi16(0x3F80));
  __m512 sum = _mm512_setzero_ps();
  __m512 weight = _mm512_setzero_ps();
  KVILT_UNROLL
  for (int c = 0; c < 4; c += 2) {
    const __m512 p0 = Exp2Against(x[c], shift);
    const __m512 p1 = Exp2Against(x[c + 1], shift);
    const Vec words = RoundToWords(p0, p1);
    _mm512_store_si512(weights + 8 * c, words);
    sum = _mm512_add_ps(sum, _mm512_add_ps(p0, p1));
    weight = _mm512_dpbf16_ps(weight, AsBf16(words), ones);
    if constexpr (kNearExact) {
      const Vec left =
          RoundToWords(_mm512_sub_ps(p0, WidenLow(words)), _mm512_sub_ps(p1, WidenHigh(words)));
      _mm512_store_si512(rest + 8 * c, left);
      weight = _mm512_dpbf16_ps(weight, AsBf16(left), ones);
    }
  }
  const float move = contract::MoveFactor(state[contract::kStateReference], reference);
  state[contract::kStateReference] = reference;
  state[contract::kStateWeight] =
      state[contract::kStateWeight] * move + _mm512_reduce_add_ps(weight);
  state[contract::kStateSum] = state[contract::kStateSum] * move + _mm512_reduce_add_ps(sum);
  return move;
}

// outputs[r][column ..] = itself * factor + sum over token pairs of P . V, the sum from zero: an
// output takes one rounding per tile, not one per pair (kFoldKeys in item_scratch.h).
template <int kRows, int kColumns, bool kNearExact>
inline void AddValues(RowBlock<kRows>& block, const u32* values, int padded, int column,
                      int pair_begin, int pair_end) {
  __m512 sums[kRows][kColumns];
  KVILT_UNROLL
  for (int r = 0; r < kRows; ++r) {
    KVILT_UNROLL
    for (int c = 0; c < kColumns; ++c) sums[r][c] = _mm512_setzero_ps();
  }
  for (int pair = pair_begin; pair < pair_end; ++pair) {
    __m512bh v[kColumns];
    KVILT_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      v[c] = AsBf16(_mm512_load_si512(values + pair * padded + column + 16 * c));
    }
    KVILT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const __m512bh p = Broadcast(block.weights[0][r][pair]);
      KVILT_UNROLL
      for (int c = 0; c < kColumns; ++c) sums[r][c] = _mm512_dpbf16_ps(sums[r][c], p, v[c]);
      if constexpr (kNearExact) {
        const __m512bh rest = Broadcast(block.weights[1][r][pair]);
        KVILT_UNROLL
        for (int c = 0; c < kColumns; ++c) sums[r][c] = _mm512_dpbf16_ps(sums[r][c], rest, v[c]);
      }
    }
  }
  KVILT_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const __m512 factor = _mm512_set1_ps(block.factors[r]);
    KVILT_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      float* const output = block.outputs[r] + column + 16 * c;
      _mm512_store_ps(output, _mm512_fmadd_ps(factor, _mm512_load_ps(output), sums[r][c]));
    }
  }
}

template <int kRows, bool kNearExact>
void AttendRows(const TileJob& job, const RowRef* rows) {
  RowBlock<kRows> block;
  u64 any = 0;
  KVILT_UNROLL
  for (int r = 0; r < kRows; ++r) {
    block.queries[r] = static_cast<const u32*>(rows[r].query);
    block.outputs[r] = rows[r].output;
    any |= rows[r].visible;
  }
  Scores<kRows>(job, block);
  KVILT_UNROLL
  for (int r = 0; r < kRows; ++r) {
    if (!job.logits.plain) {
      f32::Body(SimdTarget::kAvx512)->apply_logit_options(job.logits, rows[r], block.scores[r]);
    }
    const float scale = job.logits.plain ? job.logits.scale_log2 : contract::kLog2E;
    block.factors[r] =
        SoftmaxRow<kNearExact>(scale, rows[r].visible, block.scores[r], rows[r].state,
                               block.weights[0][r], block.weights[1][r]);
  }
  const int pair_begin = __builtin_ctzll(any) / 2;
  const int pair_end = (kTileKeys - __builtin_clzll(any) + 1) / 2;
  const int padded = Padded32(job.config->head_dim_vo);
  const u32* values = static_cast<const u32*>(job.value_tile);
  int column = 0;
  for (; column + 64 <= padded; column += 64) {
    AddValues<kRows, 4, kNearExact>(block, values, padded, column, pair_begin, pair_end);
  }
  if (column < padded) {
    AddValues<kRows, 2, kNearExact>(block, values, padded, column, pair_begin, pair_end);
  }
}

template <bool kNearExact>
void AttendBlocks(const TileJob& job) {
  using Call = void (*)(const TileJob&, const RowRef*);
  static constexpr Call kCalls[kMaxBlockRows] = {
      AttendRows<1, kNearExact>, AttendRows<2, kNearExact>, AttendRows<3, kNearExact>,
      AttendRows<4, kNearExact>, AttendRows<5, kNearExact>, AttendRows<6, kNearExact>};
  int row = 0;
  for (int blocks = contract::CeilDiv(job.row_count, kMaxBlockRows); blocks > 0; --blocks) {
    const int rows = contract::CeilDiv(job.row_count - row, blocks);
    kCalls[rows - 1](job, job.rows + row);
    row += rows;
  }
}

}  // namespace kvilt::cpu::avx512
KVILT_AVX512_END
