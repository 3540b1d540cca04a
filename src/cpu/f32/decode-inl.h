// Rows of a cache or of q to f32, exactly. Compiled once per Highway target.
#include "hwy/highway.h"
#include "src/contract/formats.h"
#include "src/cpu/attention_body.h"
#include "src/cpu/decode_tables.h"
#include "src/cpu/prefetch.h"

#if defined(KVILT_CPU_F32_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVILT_CPU_F32_DECODE_INL_H_
#undef KVILT_CPU_F32_DECODE_INL_H_
#else
#define KVILT_CPU_F32_DECODE_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace kvilt::cpu::f32 {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using contract::Format;
using contract::u16;
using contract::u32;

// At most 16 lanes, so that a row padded to 16 is a whole number of vectors.
using DF = hn::CappedTag<float, 16>;
using VF = hn::Vec<DF>;
using DU = hn::RebindToUnsigned<DF>;
using DI = hn::RebindToSigned<DF>;
using D16 = hn::Rebind<uint16_t, DF>;
using D8 = hn::Rebind<uint8_t, DF>;

// f16 bits in u32 lanes to f32, specials included. Without the CPU's own conversion, integer
// arithmetic as contract::DecodeF16 does it, so that no subnormal ever reaches a multiplier.
HWY_INLINE VF HalfToF32(hn::Vec<DU> half) {
  const DF df;
  const DU du;
  const DI di;
  const auto magnitude = hn::And(half, hn::Set(du, 0x7FFFu));
  const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(du, 0x8000u)));
  const auto normal = hn::Add(hn::ShiftLeft<13>(magnitude), hn::Set(du, 112u << 23));
  const auto subnormal = hn::BitCast(
      du, hn::Mul(hn::ConvertTo(df, hn::BitCast(di, magnitude)), hn::Set(df, 0x1p-24f)));
  const auto special = hn::Or(hn::ShiftLeft<13>(magnitude), hn::Set(du, 0x7F800000u));
  const auto signed_magnitude = hn::BitCast(di, magnitude);
  const auto finite = hn::IfThenElse(
      hn::RebindMask(du, hn::Lt(signed_magnitude, hn::Set(di, 0x400))), subnormal, normal);
  const auto wide = hn::IfThenElse(
      hn::RebindMask(du, hn::Gt(signed_magnitude, hn::Set(di, 0x7BFF))), special, finite);
  return hn::BitCast(df, hn::Or(wide, sign));
}

struct DecodeF32 {
  static constexpr int kBytes = 4;
  static float One(const u8* p) {
    float x;
    __builtin_memcpy(&x, p, 4);
    return x;
  }
  HWY_INLINE static VF Many(const u8* p) {
    return hn::LoadU(DF(), reinterpret_cast<const float*>(p));
  }
};

HWY_INLINE hn::Vec<DU> Load16(const u8* p) {
  return hn::PromoteTo(DU(), hn::LoadU(D16(), reinterpret_cast<const uint16_t*>(p)));
}
HWY_INLINE hn::Vec<DU> Load8(const u8* p) { return hn::PromoteTo(DU(), hn::LoadU(D8(), p)); }

struct DecodeBF16 {
  static constexpr int kBytes = 2;
  static float One(const u8* p) {
    u16 bits;
    __builtin_memcpy(&bits, p, 2);
    return contract::DecodeBF16(bits);
  }
  HWY_INLINE static VF Many(const u8* p) { return hn::BitCast(DF(), hn::ShiftLeft<16>(Load16(p))); }
};

struct DecodeF16 {
  static constexpr int kBytes = 2;
  static float One(const u8* p) {
    u16 bits;
    __builtin_memcpy(&bits, p, 2);
    return contract::DecodeF16(bits);
  }
  HWY_INLINE static VF Many(const u8* p) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
    const hn::Rebind<hwy::float16_t, DF> dh;
    return hn::PromoteTo(DF(), hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(p)));
#else
    return HalfToF32(Load16(p));
#endif
  }
};

// e5m2 is the upper byte of an f16.
struct DecodeE5M2 {
  static constexpr int kBytes = 1;
  static float One(const u8* p) { return contract::DecodeE5M2(*p); }
  HWY_INLINE static VF Many(const u8* p) { return HalfToF32(hn::ShiftLeft<8>(Load8(p))); }
};

// e4m3 in an f16's fields is 2^-8 of its value.
struct DecodeE4M3 {
  static constexpr int kBytes = 1;
  static float One(const u8* p) { return contract::DecodeE4M3(*p); }
  HWY_INLINE static VF Many(const u8* p) {
    const DF df;
    const DU du;
    const auto byte = Load8(p);
    const auto magnitude = hn::And(byte, hn::Set(du, 0x7Fu));
    const auto half =
        hn::Or(hn::ShiftLeft<7>(magnitude), hn::ShiftLeft<8>(hn::And(byte, hn::Set(du, 0x80u))));
    const auto value = hn::Mul(HalfToF32(half), hn::Set(df, 256.0f));
    const auto is_nan = hn::RebindMask(df, hn::Eq(magnitude, hn::Set(du, 0x7Fu)));
    return hn::IfThenElse(is_nan, hn::BitCast(df, hn::Set(du, 0x7FC00000u)), value);
  }
};

template <class Decode>
void DecodeRow(const u8* source, int head_dim, float* row) {
  const int lanes = static_cast<int>(hn::Lanes(DF()));
  int i = 0;
  for (; i + lanes <= head_dim; i += lanes) {
    hn::StoreU(Decode::Many(source + i * Decode::kBytes), DF(), row + i);
  }
  for (; i < head_dim; ++i) row[i] = Decode::One(source + i * Decode::kBytes);
}

#if HWY_TARGET == HWY_SCALAR

inline void DecodeBlock(const u8* codes, float scale, float* values) {
  for (int i = 0; i < 8; ++i) {
    values[2 * i] = static_cast<float>(kDoubledE2M1[codes[i] & 15]) * scale;
    values[2 * i + 1] = static_cast<float>(kDoubledE2M1[codes[i] >> 4]) * scale;
  }
}

#else

// Small integers times the scale, as many as the lanes of a vector of bytes.
template <class V>
HWY_INLINE void ScaleBytes(V bytes, VF scale, float* values) {
  using D = hn::DFromV<V>;
  if constexpr (hn::MaxLanes(D()) == hn::MaxLanes(DF())) {
    hn::StoreU(hn::Mul(hn::ConvertTo(DF(), hn::PromoteTo(DI(), bytes)), scale), DF(), values);
  } else {
    const hn::Half<D> half;
    ScaleBytes(hn::LowerHalf(half, bytes), scale, values);
    ScaleBytes(hn::UpperHalf(half, bytes), scale, values + hn::MaxLanes(half));
  }
}

HWY_INLINE void DecodeBlock(const u8* codes, float scale, float* values) {
  const hn::FixedTag<uint8_t, 16> d16;
  const hn::FixedTag<uint8_t, 8> d8;
  const hn::FixedTag<int8_t, 16> di16;
  const auto bytes = hn::ZeroExtendVector(d16, hn::LoadU(d8, codes));
  const auto low = hn::And(bytes, hn::Set(d16, 15));
  const auto high = hn::And(hn::ShiftRight<4>(bytes), hn::Set(d16, 15));
  const auto nibbles = hn::InterleaveLower(d16, low, high);
  const auto table = hn::Load(di16, kDoubledE2M1);
  ScaleBytes(hn::TableLookupBytes(table, hn::BitCast(di16, nibbles)), hn::Set(DF(), scale), values);
}

#endif

inline void DecodeNvfp4Row(const u8* codes, const u8* scales, int head_dim, float* row) {
  for (int block = 0; block < head_dim / 16; ++block) {
    DecodeBlock(codes + block * 8, 0.5f * kE4M3Values[scales[block]], row + block * 16);
  }
}

template <class Decode>
void DecodeAll(const RowSource& source, int count, float* rows, i64 stride) {
  for (int r = 0; r < count; ++r) {
    DecodeRow<Decode>(source.row(r), source.head_dim, rows + r * stride);
  }
}

inline void DecodeRows(const RowSource& source, int count, float* rows, i64 stride) {
  PrefetchAhead(source, 0, count);
  switch (source.format) {
    case Format::kF32:
      DecodeAll<DecodeF32>(source, count, rows, stride);
      break;
    case Format::kBF16:
      DecodeAll<DecodeBF16>(source, count, rows, stride);
      break;
    case Format::kF16:
      DecodeAll<DecodeF16>(source, count, rows, stride);
      break;
    case Format::kE4M3:
      DecodeAll<DecodeE4M3>(source, count, rows, stride);
      break;
    case Format::kE5M2:
      DecodeAll<DecodeE5M2>(source, count, rows, stride);
      break;
    case Format::kNVFP4:
      for (int r = 0; r < count; ++r) {
        DecodeNvfp4Row(source.row(r), source.scale_row(r), source.head_dim, rows + r * stride);
      }
      break;
  }
  for (int r = 0; r < count; ++r) {
    for (i64 i = source.head_dim; i < stride; ++i) rows[r * stride + i] = 0.0f;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvilt::cpu::f32
HWY_AFTER_NAMESPACE();

#endif  // include guard
