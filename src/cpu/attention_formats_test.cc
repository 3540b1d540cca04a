// RunAttention on hand-built plans, on every body that this machine can run: formats,
// head dims, groups, layouts, tables, segments. What must not be read is NaN throughout.
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "src/cpu/attention_bodies.h"
#include "src/cpu/attention_fixture.h"
#include "src/cpu/write_results.h"

namespace kvilt::cpu {
namespace {

using contract::Format;
using contract::Mask;
using contract::TableKind;

constexpr Format kFormats[] = {Format::kF32,  Format::kBF16, Format::kF16,
                               Format::kE4M3, Format::kE5M2, Format::kNVFP4};

TEST(AttentionFormats, P26_every_pair_of_key_and_value_formats) {
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

TEST(AttentionFormats, QueryAndOutputFormats) {
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

TEST(AttentionFormats, P09_head_dims) {
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

TEST(AttentionFormats, P79_any_group) {
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

TEST(AttentionFormats, P40_tail_masks_without_causal) {
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

TEST(AttentionFormats, PageSizesTablesAndLayouts) {
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

TEST(AttentionFormats, P83_P84_independent_strides) {
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

TEST(AttentionFormats, InterleavedScalesOfV) {
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

TEST(AttentionFormats, GlobalsPerSideAndPerHead) {
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

TEST(AttentionFormats, SegmentsWithTheirOwnFormats) {
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

TEST(AttentionFormats, P89_shared_prefix_read_once) {
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

// 128 owners of a long prefix: more rows than one block takes, so several items read it together.
TEST(AttentionFormats, P89_shared_prefix_of_many_owners) {
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    if (body.target == SimdTarget::kScalar || body.target == SimdTarget::kSse4) continue;
    AttentionOptions options;
    options.q_len = std::vector<i64>(128, 1);
    options.q_heads = options.kv_heads = 1;
    options.dim_qk = options.dim_vo = 16;
    options.mask = Mask::kCausal;
    SegmentOptions prefix = OneSegment(Format::kNVFP4, Format::kNVFP4, std::vector<i64>(128, 4096));
    prefix.shared = true;
    std::vector<i64> own;
    for (i64 r = 0; r < 128; ++r) own.push_back(r % 5);
    options.segments = {prefix, OneSegment(Format::kBF16, Format::kBF16, own)};
    options.cascade = true;
    ExpectRight(options, body);
  }
}

// Values far beyond what fp8 holds reach an output of the asked type.
TEST(AttentionFormats, P20_large_values_through_a_global) {
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    for (const Format out : {Format::kF32, Format::kBF16, Format::kF16}) {
      AttentionOptions options = Basic(Format::kNVFP4, Format::kNVFP4);
      options.segments[0].v.global = {2000.0f / 2688.0f};
      options.v_value = [](i64, int, int) { return 2000.0f; };
      options.out_format = out;
      options.path = body.path;
      options.accuracy = body.accuracy;
      AttentionFixture fixture(options);
      ASSERT_TRUE(fixture.Run(body.target).ok());
      for (int d = 0; d < 64; ++d) EXPECT_NEAR(fixture.out(1, 2, d), 2000.0f, 20.0f) << body;
    }
  }
}

TEST(AttentionFormats, P19_no_growth_of_the_error_with_kv) {
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

// Terms that are all alike round the same way every time: the worst case of a running f32 sum. In
// one item, in 8192 partials, and in a partial for each key. All weights are 1, so that nothing but
// sums can be off.
TEST(AttentionFormats, P19_a_long_sum_of_like_terms_does_not_drift) {
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    if (body.target == SimdTarget::kScalar || body.target == SimdTarget::kSse4) continue;
    for (const i64 split_rows : {0, 16, 1}) {
      const i64 kv = split_rows == 1 ? 262144 : 131072;
      AttentionOptions options = Basic(Format::kBF16, Format::kBF16, kv);
      options.q_len = {1};
      options.q_heads = options.kv_heads = 1;
      options.dim_qk = 16;
      options.dim_vo = 16;
      options.q_value = [](i64, int, int) { return 0.0f; };
      options.v_value = [](i64, int, int dim) { return 1.0f + 0x1p-7f * static_cast<float>(dim); };
      // Single values of V and short sums of them are exact, unless the global fills their digits.
      if (split_rows == 1) options.segments[0].v.global = {0.7f};
      options.split_rows = split_rows;
      options.path = body.path;
      options.accuracy = body.accuracy;
      AttentionFixture fixture(options);
      ASSERT_TRUE(fixture.Run(body.target).ok());
      EXPECT_LE(fixture.Error(), 1e-5) << Name(body.target) << ", splits of " << split_rows;
    }
  }
}

// As many folds as 2^25 keys make.
TEST(AttentionFormats, P19_folds_of_a_very_long_context_do_not_drift) {
  constexpr int kFolds = 8192;
  const float state[contract::kStateFloats] = {3.0f, 4095.7f, 4095.9f};
  const float output[] = {1.0f, 4095.7f, 1e-3f};
  double total[contract::kStateFloats] = {-INFINITY, 0, 0};
  double total_output[3] = {};
  for (int fold = 0; fold < kFolds; ++fold) AddState(state, output, total, total_output, 3);
  EXPECT_EQ(total[contract::kStateReference], 3.0);
  EXPECT_NEAR(total[contract::kStateWeight] / (double{state[1]} * kFolds), 1.0, 1e-7);
  EXPECT_NEAR(total[contract::kStateSum] / (double{state[2]} * kFolds), 1.0, 1e-7);
  for (int d = 0; d < 3; ++d) {
    EXPECT_NEAR(total_output[d] / (double{output[d]} * kFolds), 1.0, 1e-7);
  }
}

TEST(AttentionFormats, PrefillWithManyRowsAndBlocks) {
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    AttentionOptions options = Basic(Format::kNVFP4, Format::kNVFP4, 200);
    options.q_len = {90, 33};
    options.segments[0].lengths = {200, 33};
    options.block_rows = 32;
    options.heads_per_item = 1;
    ExpectRight(options, body, 2);
  }
}

TEST(AttentionFormats, PageIdsOutsideTheCacheAreAbsentAndReported) {
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
