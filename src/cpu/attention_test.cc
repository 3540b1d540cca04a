// RunAttention on hand-built plans, on every body that this machine can run: formats, head dims,
// layouts, tables, options. What must not be read is NaN throughout (see attention_fixture.h).
#include <gtest/gtest.h>

#include <cmath>

#include "src/cpu/attention_bodies.h"
#include "src/cpu/attention_fixture.h"

namespace kvilt::cpu {
namespace {

using contract::Format;
using contract::Mask;
using contract::TableKind;

constexpr Format kFormats[] = {Format::kF32,  Format::kBF16, Format::kF16,
                               Format::kE4M3, Format::kE5M2, Format::kNVFP4};

void ExpectRight(AttentionOptions options, const BodyUnderTest& body, int threads = 1) {
  options.path = body.path;
  options.accuracy = body.accuracy;
  AttentionFixture fixture(options);
  const Status status = fixture.Run(body.target, threads);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_LE(fixture.Error(), Tolerance(body, options)) << body;
  EXPECT_LE(fixture.LseExcess(), 1.0) << body;
}

// Options that most tests start from: three query rows on one segment.
AttentionOptions Basic(Format k, Format v, i64 kv = 150) {
  AttentionOptions options;
  options.q_len = {3};
  options.mask = Mask::kCausal;
  options.segments = {OneSegment(k, v, {kv})};
  return options;
}

TEST(Attention, P26_every_pair_of_key_and_value_formats) {
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    for (const Format k : kFormats) {
      for (const Format v : kFormats) {
        if (!Reads(body, k) || !Reads(body, v)) continue;
        SCOPED_TRACE(testing::Message() << static_cast<int>(k) << " " << static_cast<int>(v));
        ExpectRight(Basic(k, v), body);
      }
    }
  }
}

TEST(Attention, QueryAndOutputFormats) {
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    for (const Format q :
         {Format::kF32, Format::kBF16, Format::kF16, Format::kE4M3, Format::kNVFP4}) {
      for (const Format out : {Format::kF32, Format::kBF16, Format::kF16}) {
        AttentionOptions options = Basic(Format::kNVFP4, Format::kE4M3);
        options.q_format = q;
        options.out_format = out;
        SCOPED_TRACE(testing::Message() << static_cast<int>(q) << " " << static_cast<int>(out));
        ExpectRight(options, body);
      }
    }
  }
}

TEST(Attention, P09_head_dims) {
  const std::pair<int, int> kDims[] = {{8, 8},     {16, 16},   {24, 40},   {64, 64},   {72, 136},
                                       {80, 80},   {96, 96},   {128, 128}, {192, 128}, {256, 256},
                                       {512, 256}, {256, 512}, {512, 512}};
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    for (const auto& [qk, vo] : kDims) {
      for (const Format format : {Format::kBF16, Format::kE4M3, Format::kNVFP4, Format::kF16}) {
        if (!Reads(body, format)) continue;
        if (format == Format::kNVFP4 && (qk % 16 != 0 || vo % 16 != 0)) continue;
        AttentionOptions options = Basic(format, format, 77);
        options.q_len = {2};
        options.dim_qk = qk;
        options.dim_vo = vo;
        SCOPED_TRACE(testing::Message() << qk << " " << vo << " " << static_cast<int>(format));
        ExpectRight(options, body);
      }
    }
  }
}

TEST(Attention, P79_any_group) {
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    for (const auto& [q_heads, kv_heads] :
         {std::pair{1, 1}, {3, 1}, {5, 1}, {12, 2}, {7, 7}, {17, 1}, {32, 2}}) {
      AttentionOptions options = Basic(Format::kNVFP4, Format::kNVFP4, 100);
      options.q_heads = q_heads;
      options.kv_heads = kv_heads;
      ExpectRight(options, body);
    }
  }
}

TEST(Attention, P40_tail_masks_without_causal) {
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    for (const i64 kv : {1, 2, 15, 16, 17, 63, 64, 65, 255, 256, 257, 1000}) {
      AttentionOptions options = Basic(Format::kBF16, Format::kBF16, kv);
      options.q_len = {1};
      options.mask = Mask::kNone;
      options.q_value = [](i64, int, int) { return 0.0f; };
      ExpectRight(options, body);
    }
  }
}

TEST(Attention, PageSizesTablesAndLayouts) {
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    for (const i64 page : {1, 3, 4, 16, 64, 100}) {
      for (const TableKind table : {TableKind::kCsr, TableKind::kPadded, TableKind::kRagged}) {
        for (const bool nhd : {false, true}) {
          AttentionOptions options = Basic(Format::kNVFP4, Format::kNVFP4);
          options.q_len = {2, 0, 1};
          options.segments = {OneSegment(Format::kNVFP4, Format::kNVFP4, {130, 5, 7}, page)};
          options.segments[0].table = table;
          options.segments[0].k.nhd = nhd;
          options.segments[0].v.nhd = !nhd;
          ExpectRight(options, body);
        }
      }
    }
  }
}

TEST(Attention, P83_P84_independent_strides) {
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    for (const Format format : {Format::kBF16, Format::kE5M2, Format::kNVFP4}) {
      AttentionOptions options = Basic(format, format);
      options.segments[0].k.row_pad_bytes = 16;
      options.segments[0].k.page_pad_bytes = 6;
      options.segments[0].v.row_pad_bytes = 46;
      options.segments[0].v.page_pad_bytes = 1026;
      options.segments[0].v.nhd = true;
      ExpectRight(options, body);
    }
  }
}

TEST(Attention, InterleavedScalesOfV) {
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    for (const i64 page : {4, 16, 32}) {
      AttentionOptions options = Basic(Format::kBF16, Format::kNVFP4);
      options.dim_vo = 128;
      options.segments[0].page_size = page;
      options.segments[0].v.interleaved4 = true;
      options.segments[0].v.nhd = page == 16;
      ExpectRight(options, body);
    }
  }
}

TEST(Attention, GlobalsPerSideAndPerHead) {
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    AttentionOptions options = Basic(Format::kNVFP4, Format::kE4M3);
    options.segments[0].k.global = {0.01f, 0.3f};
    options.segments[0].v.global = {2.5f};
    ExpectRight(options, body);
    options.segments[0].k.global = {0.25f};
    options.segments[0].v.global = {0.001f, 16.0f};
    ExpectRight(options, body);
  }
}

TEST(Attention, SegmentsWithTheirOwnFormats) {
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    for (const i64 split : {0, 16, 48, 64}) {
      AttentionOptions options;
      options.q_len = {2, 1};
      options.mask = Mask::kCausal;
      options.segments = {OneSegment(Format::kBF16, Format::kBF16, {20, 0}, 8),
                          OneSegment(Format::kNVFP4, Format::kNVFP4, {133, 70}, 16),
                          OneSegment(Format::kE4M3, Format::kE5M2, {3, 9}, 4)};
      options.segments[1].v.global = {0.125f, 4.0f};
      options.segments[2].k.global = {0.5f};
      options.segments[2].v.global = {3.0f};
      options.split_rows = split;
      ExpectRight(options, body, 2);
    }
  }
}

TEST(Attention, P89_shared_prefix_read_once) {
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    for (const bool rope : {false, true}) {
      if (rope && !Rotates(body)) continue;
      AttentionOptions options;
      options.q_len = {1, 2, 1};
      options.mask = Mask::kCausal;
      SegmentOptions prefix = OneSegment(Format::kNVFP4, Format::kNVFP4, {100, 100, 100});
      prefix.shared = true;
      options.segments = {prefix, OneSegment(Format::kBF16, Format::kBF16, {5, 70, 1})};
      options.cascade = true;
      options.rotary_dim = rope ? 32 : 0;
      for (i64 key = 0; rope && key < 376; ++key) options.key_positions.push_back(key * 3 % 500);
      ExpectRight(options, body);
    }
  }
}

TEST(Attention, LogitOptions) {
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    for (int bits = 0; bits < 16; ++bits) {
      AttentionOptions options = Basic(Format::kBF16, Format::kBF16);
      options.sigma = 5.6f;
      options.soft_cap = bits & 1 ? 5.0f : 0.0f;
      options.alibi = bits & 2;
      options.alibi_row_index = bits & 4;
      options.bias_before_cap = bits & 8;
      options.lse_base_two = bits & 1;
      SCOPED_TRACE(bits);
      ExpectRight(options, body);
    }
  }
}

TEST(Attention, Windows) {
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    for (const Mask mask : {Mask::kNone, Mask::kCausal}) {
      for (const auto& [left, right] : {std::pair<i64, i64>{0, -1}, {17, -1}, {70, 3}, {-1, 0}}) {
        AttentionOptions options = Basic(Format::kNVFP4, Format::kBF16, 200);
        options.q_len = {5};
        options.mask = mask;
        options.window_left = left;
        options.window_right = right;
        ExpectRight(options, body);
        options.q_positions = {3, 150, 199, 260, 80};
        ExpectRight(options, body);
      }
    }
  }
}

TEST(Attention, P39_holes_of_a_custom_mask_hold_nan) {
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    AttentionOptions options = Basic(Format::kBF16, Format::kBF16, 140);
    options.q_len = {3, 2};
    options.segments[0].lengths = {140, 65};
    options.mask = Mask::kCustom;
    options.mask_bit = [](i64, i64, i64 j) { return j % 3 != 1 && j / 16 != 2; };
    ExpectRight(options, body);
  }
}

// A NaN that one row sees must not reach the rows that do not see it.
TEST(Attention, P39_nan_seen_by_another_row) {
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    for (const Format format : {Format::kBF16, Format::kE5M2, Format::kE4M3}) {
      AttentionOptions options = Basic(format, format, 70);
      options.q_len = {4};
      options.mask = Mask::kCustom;
      options.mask_bit = [](i64, i64 i, i64 j) { return i % 2 == 1 || (j != 10 && j != 69); };
      options.v_value = [](i64 key, int, int d) {
        return key == 10 && d == 5 ? NAN : 1.0f + static_cast<float>(key % 7);
      };
      options.k_value = [](i64 key, int, int d) {
        return key == 69 && d == 3 ? NAN : 0.01f * static_cast<float>(d + key % 5);
      };
      options.path = body.path;
      options.accuracy = body.accuracy;
      AttentionFixture fixture(options);
      ASSERT_TRUE(fixture.Run(body.target).ok());
      for (int h = 0; h < 4; ++h) {
        for (int d = 0; d < 64; ++d) {
          EXPECT_TRUE(std::isfinite(fixture.out(0, h, d))) << body;
          EXPECT_TRUE(std::isfinite(fixture.out(2, h, d))) << body;
          EXPECT_TRUE(std::isnan(fixture.out(1, h, d))) << body;  // Never silent garbage.
        }
      }
    }
  }
}

TEST(Attention, P55_rows_that_a_custom_mask_empties) {
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    AttentionOptions options = Basic(Format::kBF16, Format::kBF16, 90);
    options.q_len = {9};
    options.mask = Mask::kCustom;
    options.mask_bit = [](i64, i64 i, i64) { return i != 0 && i != 7 && i != 8; };
    options.v_value = [](i64, int, int) { return 1.0f; };
    options.path = body.path;
    options.accuracy = body.accuracy;
    AttentionFixture fixture(options);
    ASSERT_TRUE(fixture.Run(body.target).ok());
    for (const i64 row : {0, 7, 8}) {
      EXPECT_EQ(fixture.out(row, 1, 3), 0.0f);
      EXPECT_EQ(fixture.lse(row, 1), -INFINITY);
    }
    EXPECT_NEAR(fixture.out(1, 1, 3), 1.0f, 1e-5f);
    EXPECT_LE(fixture.LseExcess(), 1.0);
  }
}

TEST(Attention, TreeMask) {
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    AttentionOptions options = Basic(Format::kNVFP4, Format::kNVFP4, 133);
    options.q_len = {5, 3};
    options.segments[0].lengths = {133, 3};
    options.mask = Mask::kTree;
    options.mask_bit = [](i64, i64 i, i64 j) { return j <= i && (i - j) % 2 == 0; };
    ExpectRight(options, body);
  }
}

TEST(Attention, P21_sink_is_in_natural_units) {
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    for (const float global : {0.1f, 1.0f, 10.0f}) {
      for (const i64 split : {0, 64}) {
        AttentionOptions options = Basic(Format::kE4M3, Format::kE4M3);
        options.segments[0].k.global = {global};
        options.sink = {-2.0f, 0.0f, 3.0f, 100.0f};
        options.split_rows = split;
        ExpectRight(options, body);
      }
    }
  }
}

// Weights are rounded, the sink is not: the rounding must not show where the sink dominates.
TEST(Attention, SinkDoesNotSeeTheRoundingOfWeights) {
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    AttentionOptions options = Basic(Format::kBF16, Format::kBF16, 3);
    options.q_len = {1};
    options.q_value = [](i64, int, int) { return 0.25f; };
    options.k_value = [](i64, int, int) { return 0.3125f; };  // p = 2^-0.098: far from a bf16.
    options.v_value = [](i64, int, int) { return 1.0f; };
    options.sink = {5.0f, 5.0f, 5.0f, 5.0f};
    options.path = body.path;
    options.accuracy = body.accuracy;
    AttentionFixture fixture(options);
    ASSERT_TRUE(fixture.Run(body.target).ok());
    EXPECT_LE(fixture.Error(), 1e-5) << body;
  }
}

TEST(Attention, P35_empty_rows_and_requests) {
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    for (const bool sink : {false, true}) {
      AttentionOptions options;
      options.q_len = {1, 0, 1, 1, 0, 1, 1, 1};
      options.mask = Mask::kCausal;
      options.segments = {OneSegment(Format::kNVFP4, Format::kBF16, {5, 0, 0, 77, 0, 1, 16, 0})};
      if (sink) options.sink = {0.5f, -1.0f, 2.0f, 0.0f};
      ExpectRight(options, body);
    }
  }
}

TEST(Attention, P52_causal_with_more_queries_than_keys) {
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    AttentionOptions options = Basic(Format::kBF16, Format::kBF16, 15);
    options.q_len = {48};
    options.path = body.path;
    options.accuracy = body.accuracy;
    AttentionFixture fixture(options);
    ASSERT_TRUE(fixture.Run(body.target).ok());
    for (i64 row = 0; row < 33; ++row) {
      EXPECT_EQ(fixture.lse(row, 0), -INFINITY);
      EXPECT_EQ(fixture.out(row, 0, 0), 0.0f);
    }
    EXPECT_LE(fixture.Error(), Tolerance(body, options));
    EXPECT_LE(fixture.LseExcess(), 1.0);
  }
}

TEST(Attention, P51_extreme_logits) {
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    for (const i64 kv : {1, 2, 300}) {
      for (const bool base_two : {false, true}) {
        AttentionOptions options = Basic(Format::kBF16, Format::kBF16, kv);
        options.q_len = {1};
        options.dim_qk = options.dim_vo = 128;
        options.lse_base_two = base_two;
        options.q_value = [](i64, int, int) { return 64.0f; };
        options.k_value = [](i64, int, int) { return -64.0f; };
        options.v_value = [](i64, int, int) { return 1.0f; };
        options.path = body.path;
        options.accuracy = body.accuracy;
        for (const i64 split : {0, 128}) {
          options.split_rows = split;
          AttentionFixture fixture(options);
          ASSERT_TRUE(fixture.Run(body.target).ok());
          EXPECT_NEAR(fixture.out(0, 0, 0), 1.0f, 1e-5f);
          EXPECT_LE(fixture.LseExcess(), 1.0) << fixture.lse(0, 0);
        }
      }
    }
  }
}

TEST(Attention, P19_no_growth_of_the_error_with_kv) {
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    if (body.target == SimdTarget::kScalar || body.target == SimdTarget::kSse4) continue;
    for (const i64 kv : {1024, 32768}) {
      AttentionOptions options = Basic(Format::kE4M3, Format::kBF16, kv);
      options.q_len = {1};
      options.q_heads = options.kv_heads = 1;
      options.dim_qk = 16;
      options.dim_vo = 16;
      options.q_value = [](i64, int, int) { return 0.0f; };
      options.v_value = [](i64 t, int, int) { return 1.0f + 1e-3f * static_cast<float>(t % 7); };
      ExpectRight(options, body);
    }
  }
}

TEST(Attention, P73_rope_in_the_kernel) {
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    if (!Rotates(body)) continue;
    for (const bool interleaved : {false, true}) {
      for (const int rotary : {64, 24}) {
        for (const i64 first : {0, 5, 100000, 1000000}) {
          AttentionOptions options = Basic(Format::kBF16, Format::kBF16, 150);
          options.rotary_dim = rotary;
          options.rope_interleaved = interleaved;
          if (first > 0) {
            for (i64 key = 0; key < 150; ++key) options.key_positions.push_back(first + key);
            options.q_positions = {first + 147, first + 148, first + 149};
          }
          SCOPED_TRACE(testing::Message() << interleaved << " " << rotary << " " << first);
          ExpectRight(options, body);
        }
      }
    }
  }
}

TEST(Attention, PrefillWithManyRowsAndBlocks) {
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    AttentionOptions options = Basic(Format::kNVFP4, Format::kNVFP4, 200);
    options.q_len = {90, 33};
    options.segments[0].lengths = {200, 33};
    options.block_rows = 32;
    options.heads_per_item = 1;
    ExpectRight(options, body, 2);
  }
}

TEST(Attention, PageIdsOutsideTheCacheAreAbsentAndReported) {
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    AttentionOptions options = Basic(Format::kBF16, Format::kBF16, 100);
    options.q_len = {1};
    options.mask = Mask::kCustom;
    options.mask_bit = [](i64, i64, i64 j) { return j / 16 != 3; };
    options.path = body.path;
    options.accuracy = body.accuracy;
    AttentionFixture fixture(options);
    // Page 3 is masked: its id may be anything.
    fixture.page_ids(0)[3] = -1;
    ASSERT_TRUE(fixture.Run(body.target).ok());
    EXPECT_LE(fixture.Error(), Tolerance(body, options));
    fixture.page_ids(0)[5] = 1 << 30;
    const Status status = fixture.Run(body.target);
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.message().find("page 5"), std::string::npos) << status.message();
    EXPECT_TRUE(std::isfinite(fixture.out(0, 0, 0)));
  }
}

}  // namespace
}  // namespace kvilt::cpu
