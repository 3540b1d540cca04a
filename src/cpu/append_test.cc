// Append and Dequantize on the CPU: bytes against the formats one element at a time, addresses
// against plain index arithmetic, and what must not be touched.
#include "src/cpu/append.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "src/contract/formats.h"
#include "src/cpu/dequantize.h"
#include "src/cpu/side_fixture.h"

namespace kvilt::cpu {
namespace {

using contract::Format;
using contract::i32;
using contract::i64;
using contract::u16;
using contract::u32;
using contract::u8;
using test::SideFixture;
using test::SideShape;

constexpr Format kSources[] = {Format::kF32, Format::kBF16, Format::kF16};
constexpr Format kCaches[] = {Format::kF32,  Format::kBF16, Format::kF16,
                              Format::kE4M3, Format::kE5M2, Format::kNVFP4};

// Dense rows [tokens, heads, head_dim] in any row format, with their values as f32.
struct Rows {
  Format format = Format::kF32;
  i64 tokens = 0;
  i64 heads = 0;
  i64 head_dim = 0;
  std::vector<float> values;
  std::vector<u8> bytes;

  i64 ElementBytes() const { return format == Format::kF32 ? 4 : 2; }
  contract::RowParams Params() {
    return {bytes.data(), static_cast<i32>(format), heads * head_dim * ElementBytes(),
            head_dim * ElementBytes()};
  }
  float Value(i64 token, i64 head, i64 d) const {
    return values[static_cast<std::size_t>((token * heads + head) * head_dim + d)];
  }
};

Rows MakeRows(Format format, i64 tokens, i64 heads, i64 head_dim, std::vector<float> values) {
  Rows rows{format, tokens, heads, head_dim, std::move(values), {}};
  rows.bytes.resize(rows.values.size() * static_cast<std::size_t>(rows.ElementBytes()));
  for (std::size_t i = 0; i < rows.values.size(); ++i) {
    float& x = rows.values[i];
    if (format == Format::kF32) {
      std::memcpy(&rows.bytes[4 * i], &x, 4);
      continue;
    }
    const u16 half = format == Format::kBF16 ? contract::EncodeBF16(x) : contract::EncodeF16(x);
    std::memcpy(&rows.bytes[2 * i], &half, 2);
    x = format == Format::kBF16 ? contract::DecodeBF16(half) : contract::DecodeF16(half);
  }
  return rows;
}

Rows EmptyRows(Format format, i64 tokens, i64 heads, i64 head_dim) {
  return MakeRows(format, tokens, heads, head_dim,
                  std::vector<float>(static_cast<std::size_t>(tokens * heads * head_dim), 7.0f));
}

// Log-normal token magnitudes, now and then something special.
std::vector<float> SomeValues(i64 tokens, i64 row_elements, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const float specials[] = {0.0f, -0.0f, 1e-41f, -1e-41f, 6e4f, std::nanf(""), INFINITY, -INFINITY};
  std::vector<float> values;
  for (i64 t = 0; t < tokens; ++t) {
    const float magnitude = std::exp(2 * normal(random));
    for (i64 i = 0; i < row_elements; ++i) {
      values.push_back(random() % 97 == 0 ? specials[random() % 8] : normal(random) * magnitude);
    }
  }
  return values;
}

void ExpectedRow(const Rows& rows, i64 token, i64 slot, i64 head, bool four_over_six,
                 const SideFixture& side, std::vector<u8>& bytes) {
  const float global = side.Global(head);
  const i64 head_dim = side.shape().head_dim;
  u8* data = &bytes[side.DataAt(slot, head)];
  for (i64 d = 0; d < head_dim; ++d) {
    const float y = contract::StoredValue(rows.Value(token, head, d), global);
    const u16 bf16 = contract::EncodeBF16(y);
    const u16 f16 = contract::EncodeF16(y);
    switch (side.shape().format) {
      case Format::kF32:
        std::memcpy(data + 4 * d, &y, 4);
        break;
      case Format::kBF16:
        std::memcpy(data + 2 * d, &bf16, 2);
        break;
      case Format::kF16:
        std::memcpy(data + 2 * d, &f16, 2);
        break;
      case Format::kE4M3:
        data[d] = contract::EncodeE4M3(y);
        break;
      case Format::kE5M2:
        data[d] = contract::EncodeE5M2(y);
        break;
      case Format::kNVFP4:
        if (d % 16 != 0) break;
        const contract::Nvfp4Block block = contract::EncodeNvfp4Block(
            &rows.values[static_cast<std::size_t>((token * rows.heads + head) * head_dim + d)],
            global, four_over_six);
        std::memcpy(data + d / 2, block.codes, 8);
        bytes[side.ScaleAt(slot, head, d / 16)] = block.scale;
        break;
    }
  }
}

contract::AppendParams ParamsOf(Rows& k_rows, Rows& v_rows, const SideFixture& k,
                                const SideFixture& v, const std::vector<i64>& slots) {
  contract::AppendParams params;
  params.k_rows = k_rows.Params();
  params.v_rows = v_rows.Params();
  params.k = k.Params();
  params.v = v.Params();
  params.tokens = static_cast<i64>(slots.size());
  params.kv_heads = k.shape().heads;
  params.page_size = k.shape().page_size;
  params.slots = slots.data();
  return params;
}

contract::DequantizeParams ReadParams(Rows& k_rows, Rows& v_rows, const SideFixture& k,
                                      const SideFixture& v, const std::vector<i64>& slots) {
  contract::DequantizeParams params;
  params.k_rows = k_rows.Params();
  params.v_rows = v_rows.Params();
  params.k = k.Params();
  params.v = v.Params();
  params.tokens = static_cast<i64>(slots.size());
  params.kv_heads = k.shape().heads;
  params.page_size = k.shape().page_size;
  params.slots = slots.data();
  return params;
}

SideShape ShapeOf(Format format, int variant, i32 head_dim, bool is_v) {
  SideShape shape;
  shape.format = format;
  shape.head_dim = head_dim;
  shape.hnd = variant % 2 == 1;
  const bool nvfp4 = format == Format::kNVFP4;
  shape.packed_scales = nvfp4 && variant % 4 >= 2;
  shape.interleaved4 = nvfp4 && is_v && variant % 3 != 0;
  shape.padding = variant % 5 == 0 ? 24 : 0;
  return shape;
}

std::vector<float> GlobalsOf(int variant) {
  if (variant % 3 == 0) return {1.0f};
  if (variant % 3 == 1) return {0.0371f};
  return {0.5f, 3.7f};
}

TEST(CpuAppend, P26_every_source_to_every_pair_of_caches_byte_for_byte) {
  WorkerPool pool(2);
  const std::vector<i64> slots = {9, 0, -1, 11, 4, 5, 2, -1, 7};
  const i64 tokens = static_cast<i64>(slots.size());
  int variant = 0;
  for (Format source : kSources) {
    for (Format k_format : kCaches) {
      for (Format v_format : kCaches) {
        ++variant;
        SCOPED_TRACE(variant);
        SideFixture k(ShapeOf(k_format, variant, 96, false), GlobalsOf(variant));
        SideFixture v(ShapeOf(v_format, variant / 2, 128, true), GlobalsOf(variant + 1));
        Rows k_rows = MakeRows(source, tokens, 2, 96, SomeValues(tokens, 2 * 96, 1));
        Rows v_rows =
            MakeRows(kSources[variant % 3], tokens, 2, 128, SomeValues(tokens, 2 * 128, 2));
        std::vector<u8> k_bytes = k.bytes;
        std::vector<u8> v_bytes = v.bytes;
        const bool four_over_six = variant % 2 == 0;
        for (i64 t = 0; t < tokens; ++t) {
          const i64 slot = slots[static_cast<std::size_t>(t)];
          for (i64 h = 0; h < 2 && slot >= 0; ++h) {
            ExpectedRow(k_rows, t, slot, h, four_over_six, k, k_bytes);
            ExpectedRow(v_rows, t, slot, h, four_over_six, v, v_bytes);
          }
        }
        contract::AppendParams params = ParamsOf(k_rows, v_rows, k, v, slots);
        params.four_over_six = four_over_six;
        const AppendHealth health = Append(params, pool);
        ASSERT_EQ(k.bytes, k_bytes);
        ASSERT_EQ(v.bytes, v_bytes);
        EXPECT_EQ(health.k.skipped, 2);
        EXPECT_EQ(health.v.skipped, 2);
      }
    }
  }
}

TEST(CpuAppend, P03_packed_rows_and_any_layout_read_back_alike) {
  WorkerPool pool(2);
  std::vector<i64> slots;
  for (i64 slot = 0; slot < 12; ++slot) slots.push_back((slot * 5) % 12);
  for (Format format : kCaches) {
    std::vector<float> first;
    for (int variant = 0; variant < 12; ++variant) {
      SCOPED_TRACE(variant);
      SideFixture k(ShapeOf(format, variant, 256, false), {0.25f});
      SideFixture v(ShapeOf(format, variant, 256, true), {0.25f});
      Rows rows = MakeRows(Format::kF32, 12, 2, 256, SomeValues(12, 512, 4));
      Append(ParamsOf(rows, rows, k, v, slots), pool);
      Rows k_out = EmptyRows(Format::kF32, 12, 2, 256);
      Rows v_out = EmptyRows(Format::kF32, 12, 2, 256);
      Dequantize(ReadParams(k_out, v_out, k, v, slots), pool);
      EXPECT_EQ(k_out.bytes, v_out.bytes) << "K is linear, V may be interleaved";
      std::vector<float> values(rows.values.size());
      std::memcpy(values.data(), k_out.bytes.data(), k_out.bytes.size());
      if (first.empty()) first = values;
      EXPECT_EQ(std::memcmp(first.data(), values.data(), k_out.bytes.size()), 0);
    }
  }
}

TEST(CpuAppend, DequantizeRoundsEachProductAndTheOutput) {
  WorkerPool pool(1);
  const std::vector<i64> slots = {1};
  for (Format format : kCaches) {
    for (Format out_format : kSources) {
      SideFixture side(ShapeOf(format, 0, 64, false), {0.3f, 1.7f});
      std::mt19937 random(3);
      for (u8& byte : side.bytes) byte = static_cast<u8>(random());
      Rows k_out = EmptyRows(out_format, 1, 2, 64);
      Rows v_out = EmptyRows(out_format, 1, 2, 64);
      Dequantize(ReadParams(k_out, v_out, side, side, slots), pool);
      for (i64 h = 0; h < 2; ++h) {
        for (i64 d = 0; d < 64; ++d) {
          const u8* data = &side.bytes[side.DataAt(1, h)];
          float stored = 0;
          u16 half = 0;
          if (format == Format::kF32) std::memcpy(&stored, data + 4 * d, 4);
          if (format == Format::kBF16 || format == Format::kF16)
            std::memcpy(&half, data + 2 * d, 2);
          if (format == Format::kBF16) stored = contract::DecodeBF16(half);
          if (format == Format::kF16) stored = contract::DecodeF16(half);
          if (format == Format::kE4M3) stored = contract::DecodeE4M3(data[d]);
          if (format == Format::kE5M2) stored = contract::DecodeE5M2(data[d]);
          if (format == Format::kNVFP4) {
            stored = contract::DecodeE2M1(data[d / 2] >> (d % 2 * 4)) *
                     contract::DecodeE4M3(side.bytes[side.ScaleAt(1, h, d / 16)]);
          }
          const volatile float value = stored * side.Global(h);
          const std::size_t at = static_cast<std::size_t>(h * 64 + d);
          if (out_format == Format::kF32) {
            float got = 0;
            std::memcpy(&got, &k_out.bytes[4 * at], 4);
            if (std::isnan(value)) {
              ASSERT_TRUE(std::isnan(got));
            } else {
              ASSERT_EQ(contract::FloatBits(got), contract::FloatBits(value));
            }
          } else {
            u16 got = 0;
            std::memcpy(&got, &k_out.bytes[2 * at], 2);
            const bool bf16 = out_format == Format::kBF16;
            if (std::isnan(value)) {
              ASSERT_TRUE(std::isnan(bf16 ? contract::DecodeBF16(got) : contract::DecodeF16(got)));
            } else {
              ASSERT_EQ(got, bf16 ? contract::EncodeBF16(value) : contract::EncodeF16(value));
            }
          }
        }
      }
      EXPECT_EQ(k_out.bytes, v_out.bytes);
    }
  }
}

TEST(CpuAppend, P17_one_loud_channel_saturates_and_is_counted) {
  WorkerPool pool(2);
  const i64 tokens = 8;
  std::vector<float> values(static_cast<std::size_t>(tokens * 128), 0.5f);
  for (i64 t = 0; t < tokens; ++t) {
    values[static_cast<std::size_t>(t * 128 + 17)] = t % 2 == 0 ? 1500.0f : -1500.0f;
    values[static_cast<std::size_t>(t * 128 + 64 + 17)] = 448.0f;  // The second head just fits.
  }
  std::vector<i64> slots;
  for (i64 t = 0; t < tokens; ++t) slots.push_back(t);
  SideFixture k({Format::kE4M3}, {1.0f});
  SideFixture v({Format::kE4M3}, {2.0f});
  Rows rows = MakeRows(Format::kBF16, tokens, 2, 64, values);
  const AppendHealth health = Append(ParamsOf(rows, rows, k, v, slots), pool);
  EXPECT_EQ(health.k, (HealthCounters{0, 0, 8, 0, 0}));
  EXPECT_EQ(health.v, (HealthCounters{0, 0, 8, 0, 0})) << "750 > 448 still";
  EXPECT_EQ(contract::DecodeE4M3(k.bytes[k.DataAt(0, 0) + 17]), 448.0f);
  EXPECT_EQ(contract::DecodeE4M3(k.bytes[k.DataAt(1, 0) + 17]), -448.0f);
}

TEST(CpuAppend, HealthCountsElementsAndBlocks) {
  WorkerPool pool(1);
  std::vector<float> values(128, 1.0f);
  values[0] = std::nanf("");
  values[1] = INFINITY;  // Head 0, block 0: saturated.
  for (int i = 16; i < 32; ++i) values[static_cast<std::size_t>(i)] = 1e-6f;   // Flushed.
  for (int i = 32; i < 48; ++i) values[static_cast<std::size_t>(i)] = 0.0f;    // Zero is no loss.
  for (int i = 48; i < 64; ++i) values[static_cast<std::size_t>(i)] = 1e-40f;  // Counts as zero.
  values[64] = 2689.0f;                                                        // Head 1: saturated.
  const std::vector<i64> slots = {3};
  Rows rows = MakeRows(Format::kF32, 1, 2, 64, values);
  SideFixture k({Format::kNVFP4}, {1.0f});
  SideFixture v({Format::kBF16}, {1.0f});
  const AppendHealth health = Append(ParamsOf(rows, rows, k, v, slots), pool);
  EXPECT_EQ(health.k, (HealthCounters{1, 1, 2, 1, 0}));
  EXPECT_EQ(health.v, (HealthCounters{1, 1, 0, 0, 0}));
}

#if defined(__SSE2__)
TEST(CpuAppend, BitsDoNotDependOnFlushModesOrThreads) {
  constexpr unsigned kFtzDazTowardsZero = 0x8040u | 0x6000u;
  const i64 tokens = 12;
  std::vector<i64> slots;
  for (i64 t = 0; t < tokens; ++t) slots.push_back(t);
  // Tiny values: errors of four_over_six, quotients and 16-bit results are subnormal.
  std::vector<float> values = SomeValues(tokens, 128, 5);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] *= i % 3 == 0 ? 1e-36f : 1e-21f;
  for (Format format : kCaches) {
    std::vector<u8> cache_bytes;
    std::vector<u8> out_bytes;
    for (int threads : {1, 4}) {
      for (bool flush : {false, true}) {
        WorkerPool pool(threads);
        SideFixture side({format}, {0x1p-70f});
        SideFixture other({format}, {0x1p20f});
        Rows rows = MakeRows(Format::kF32, tokens, 2, 64, values);
        Rows out = EmptyRows(Format::kF32, tokens, 2, 64);
        Rows other_out = EmptyRows(Format::kF32, tokens, 2, 64);
        contract::AppendParams params = ParamsOf(rows, rows, side, other, slots);
        params.four_over_six = 1;
        const unsigned former = _mm_getcsr();
        if (flush) _mm_setcsr(former | kFtzDazTowardsZero);
        const unsigned during = _mm_getcsr();
        Append(params, pool);
        Dequantize(ReadParams(out, other_out, side, other, slots), pool);
        EXPECT_EQ(_mm_getcsr(), during) << "the mode of the caller is restored";
        _mm_setcsr(former);
        side.bytes.insert(side.bytes.end(), other.bytes.begin(), other.bytes.end());
        out.bytes.insert(out.bytes.end(), other_out.bytes.begin(), other_out.bytes.end());
        if (cache_bytes.empty()) cache_bytes = side.bytes;
        if (out_bytes.empty()) out_bytes = out.bytes;
        EXPECT_EQ(side.bytes, cache_bytes) << static_cast<int>(format);
        EXPECT_EQ(out.bytes, out_bytes) << static_cast<int>(format);
      }
    }
  }
}
#endif

}  // namespace
}  // namespace kvilt::cpu
