#include "src/cpu/avx512/body.h"

#include "src/cpu/f32/body.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))

#if defined(__GNUC__) && !defined(__clang__)
// GCC's own AVX-512 headers read a variable initialised with itself (its bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include "src/cpu/avx512/attend.h"

KVILT_AVX512_BEGIN
namespace kvilt::cpu::avx512 {
namespace {

i64 QueryRowBytes(const BodyConfig& config) {
  return (config.q_is_bf16_exact ? 2 : 4) * i64{Padded32(config.head_dim_qk)};
}
// A tile, and room for a scale per 16 elements.
i64 KeyTileBytes(const BodyConfig& config) {
  const i64 padded = Padded32(config.head_dim_qk);
  return kTileKeys * (2 * padded + padded / 16 * 4);
}
i64 ValueTileBytes(const BodyConfig& config) {
  return kTileKeys * 2 * i64{Padded32(config.head_dim_vo)};
}
i64 OutputRowFloats(const BodyConfig& config) { return Padded32(config.head_dim_vo); }

void PrepareQuery(const BodyConfig& config, const float* row, void* query) {
  const int padded = Padded32(config.head_dim_qk);
  const int stride = contract::RoundUp(config.head_dim_qk, 16);
  u16* words = static_cast<u16*>(query);
  for (int dim = 0; dim < padded; dim += 32) {
    const SplitF32Rows<0> high{row, stride};
    const SplitF32Rows<1> rest{row, stride};
    _mm512_store_si512(words + dim, high.Load32(row + dim, stride - dim));
    if (config.q_is_bf16_exact) continue;
    _mm512_store_si512(words + padded + dim, rest.Load32(row + dim, stride - dim));
  }
}

void DecodeKeys(const BodyConfig& config, const RowSource& source, const Rotation*,
                void* key_tile) {
  u32* tile = static_cast<u32*>(key_tile);
  const int dim = config.head_dim_qk;
  switch (source.format) {
    case Format::kNVFP4:
      DecodeNvfp4Keys(source, dim, tile, KeyScales(config, tile));
      break;
    case Format::kE4M3:
      DecodeKeysByWords(Fp8Rows{source, PlaneLookup(kE4M3Planes)}, source, dim, tile);
      break;
    case Format::kE5M2:
      DecodeKeysByWords(Fp8Rows{source, PlaneLookup(kE5M2Planes)}, source, dim, tile);
      break;
    default:
      DecodeKeysByWords(Bf16Rows{source}, source, dim, tile);
      break;
  }
}

void DecodeValues(const BodyConfig& config, const RowSource& source, void* value_tile) {
  u32* tile = static_cast<u32*>(value_tile);
  const int dim = config.head_dim_vo;
  switch (source.format) {
    case Format::kNVFP4:
      DecodeNvfp4Values(source, dim, tile);
      break;
    case Format::kE4M3:
      DecodeValuesByWords(Fp8Rows{source, PlaneLookup(kE4M3Planes)}, source, dim, tile);
      break;
    case Format::kE5M2:
      DecodeValuesByWords(Fp8Rows{source, PlaneLookup(kE5M2Planes)}, source, dim, tile);
      break;
    default:
      DecodeValuesByWords(Bf16Rows{source}, source, dim, tile);
      break;
  }
}

bool ValuesAreFinite(const BodyConfig& config, const void* value_tile) {
  return TileIsFinite(config.head_dim_vo, static_cast<const u32*>(value_tile));
}

void Attend(const TileJob& job) {
  if (job.config->near_exact) {
    AttendBlocks<true>(job);
  } else {
    AttendBlocks<false>(job);
  }
}

void FinishOutput(const BodyConfig& config, const float* output, float* natural) {
  const Vec order = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
  for (int dim = 0; dim < config.head_dim_vo; dim += 16) {
    const __mmask16 lanes = static_cast<__mmask16>(LowBits32(config.head_dim_vo - dim));
    _mm512_mask_storeu_ps(natural + dim, lanes,
                          _mm512_permutexvar_ps(order, _mm512_load_ps(output + dim)));
  }
}

}  // namespace
}  // namespace kvilt::cpu::avx512
KVILT_AVX512_END

namespace kvilt::cpu::avx512 {
namespace {

AttentionBody MakeBody(const AttentionBody& f32_body) {
  AttentionBody body = f32_body;
  body.query_row_bytes = QueryRowBytes;
  body.key_tile_bytes = KeyTileBytes;
  body.value_tile_bytes = ValueTileBytes;
  body.output_row_floats = OutputRowFloats;
  body.prepare_query = PrepareQuery;
  body.decode_keys = DecodeKeys;
  body.decode_values = DecodeValues;
  body.values_are_finite = ValuesAreFinite;
  body.attend = Attend;
  body.finish_output = FinishOutput;
  return body;
}

bool MachineHasIt() {
  return __builtin_cpu_supports("avx512bf16") != 0 && __builtin_cpu_supports("avx512vbmi") != 0;
}

}  // namespace

const AttentionBody* Body() {
  // AVX-512 F, BW, DQ, VL and the system's support for them: what f32's body asks for.
  static const AttentionBody* const f32_body = f32::Body(SimdTarget::kAvx512);
  if (f32_body == nullptr || !MachineHasIt()) return nullptr;
  static const AttentionBody body = MakeBody(*f32_body);
  return &body;
}

}  // namespace kvilt::cpu::avx512

#else

namespace kvilt::cpu::avx512 {

const AttentionBody* Body() { return nullptr; }

}  // namespace kvilt::cpu::avx512

#endif
