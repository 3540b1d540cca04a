// 64 elements of a row as bf16 words, for formats that are exact in bf16. Include inside the
// target region of body.cc only.
#pragma once

#include <immintrin.h>

#include <array>

#include "src/contract/formats.h"
#include "src/cpu/attention_body.h"
#include "src/cpu/avx512/region.h"
#include "src/cpu/unroll.h"

KVILT_AVX512_BEGIN
namespace kvilt::cpu::avx512 {

using contract::Format;
using contract::u16;
using contract::u32;
using Vec = __m512i;

// Elements 0..31 and 32..63.
struct Words {
  Vec first;
  Vec second;
};

inline __mmask32 LowBits32(int count) {
  return count >= 32 ? ~__mmask32{0} : (__mmask32{1} << (count < 0 ? 0 : count)) - 1;
}
inline __mmask64 LowBits64(int count) {
  return count >= 64 ? ~__mmask64{0} : (__mmask64{1} << count) - 1;
}

inline __m512bh AsBf16(Vec v) { return (__m512bh)v; }
inline Vec AsVec(__m512bh v) { return (Vec)v; }
inline Vec AsVec(__m512 v) { return _mm512_castps_si512(v); }
inline __m512 AsFloat(Vec v) { return _mm512_castsi512_ps(v); }

// Words 0..31 from two vectors of floats, nearest even.
inline Vec RoundToWords(__m512 first, __m512 second) {
  return AsVec(_mm512_cvtne2ps_pbh(second, first));
}
inline __m512 WidenLow(Vec words) {  // Words 0..15.
  return AsFloat(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(words)), 16));
}
inline __m512 WidenHigh(Vec words) {  // Words 16..31.
  return AsFloat(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(words, 1)), 16));
}

struct Bf16Rows {
  const RowSource& source;
  Words Load(int t, int dim) const {
    const u8* p = source.row(t) + dim * 2;
    const int left = source.head_dim - dim;
    return {_mm512_maskz_loadu_epi16(LowBits32(left), p),
            _mm512_maskz_loadu_epi16(LowBits32(left - 32), p + 64)};
  }
};

// bf16 bits of the 128 magnitudes of an 8-bit format, as two planes of bytes.
struct BytePlanes {
  alignas(64) std::array<u8, 128> low{};
  alignas(64) std::array<u8, 128> high{};
};
template <float (*kDecode)(u8)>
constexpr BytePlanes MakePlanes() {
  BytePlanes planes;
  for (std::size_t i = 0; i < 128; ++i) {
    const u16 bits = contract::EncodeBF16(kDecode(static_cast<u8>(i)));
    planes.low[i] = static_cast<u8>(bits);
    planes.high[i] = static_cast<u8>(bits >> 8);
  }
  return planes;
}
inline constexpr BytePlanes kE4M3Planes = MakePlanes<contract::DecodeE4M3>();
inline constexpr BytePlanes kE5M2Planes = MakePlanes<contract::DecodeE5M2>();

// Looks 64 bytes up: the low and high bytes of their bf16 values.
class PlaneLookup {
 public:
  explicit PlaneLookup(const BytePlanes& planes)
      : low0_(_mm512_load_si512(planes.low.data())),
        low1_(_mm512_load_si512(planes.low.data() + 64)),
        high0_(_mm512_load_si512(planes.high.data())),
        high1_(_mm512_load_si512(planes.high.data() + 64)) {}
  Vec Low(Vec bytes) const { return _mm512_permutex2var_epi8(low0_, bytes, low1_); }
  Vec High(Vec bytes) const {
    const Vec magnitude = _mm512_permutex2var_epi8(high0_, bytes, high1_);
    // magnitude | (bytes & 0x80)
    return _mm512_ternarylogic_epi32(magnitude, bytes, _mm512_set1_epi8(-128), 0xF8);
  }

 private:
  Vec low0_, low1_, high0_, high1_;
};

// Bytes 0..63 as words in order: qwords are spread first, because unpack works inside 128 bits.
inline Words InterleaveBytes(const PlaneLookup& lookup, Vec bytes) {
  const Vec order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
  const Vec spread = _mm512_permutexvar_epi64(order, bytes);
  const Vec low = lookup.Low(spread);
  const Vec high = lookup.High(spread);
  return {_mm512_unpacklo_epi8(low, high), _mm512_unpackhi_epi8(low, high)};
}

struct Fp8Rows {
  const RowSource& source;
  PlaneLookup lookup;
  Words Load(int t, int dim) const {
    const Vec bytes =
        _mm512_maskz_loadu_epi8(LowBits64(source.head_dim - dim), source.row(t) + dim);
    return InterleaveBytes(lookup, bytes);
  }
};

// f32 rows, split into a bf16 number (kPart 0) and the rest rounded to bf16 (kPart 1).
template <int kPart>
struct SplitF32Rows {
  const float* rows;
  i64 stride;
  Vec Load32(const float* row, int left) const {
    const __m512 a = _mm512_maskz_loadu_ps(static_cast<__mmask16>(LowBits32(left)), row);
    const __m512 b = _mm512_maskz_loadu_ps(static_cast<__mmask16>(LowBits32(left - 16)), row + 16);
    const Vec high = RoundToWords(a, b);
    if constexpr (kPart == 0) return high;
    return RoundToWords(_mm512_sub_ps(a, WidenLow(high)), _mm512_sub_ps(b, WidenHigh(high)));
  }
  Words Load(int t, int dim) const {
    const float* row = rows + t * stride + dim;
    const int left = static_cast<int>(stride) - dim;
    return {Load32(row, left), Load32(row + 32, left - 32)};
  }
};

}  // namespace kvilt::cpu::avx512
KVILT_AVX512_END
