// RunAttention on hand-built plans, on every body that this machine can run: logit
// options, masks, windows, sinks, RoPE, empty rows, NaN that must not spread.
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "src/cpu/attention_bodies.h"
#include "src/cpu/attention_fixture.h"

namespace kvilt::cpu {
namespace {

using contract::Format;
using contract::Mask;

TEST(AttentionOptions, LogitOptions) {
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

TEST(AttentionOptions, Windows) {
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

TEST(AttentionOptions, P39_holes_of_a_custom_mask_hold_nan) {
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
TEST(AttentionOptions, P39_nan_seen_by_another_row) {
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

TEST(AttentionOptions, P55_rows_that_a_custom_mask_empties) {
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

TEST(AttentionOptions, TreeMask) {
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    AttentionOptions options = Basic(Format::kNVFP4, Format::kNVFP4, 133);
    options.q_len = {5, 3};
    options.segments[0].lengths = {133, 3};
    options.mask = Mask::kTree;
    options.mask_bit = [](i64, i64 i, i64 j) { return j <= i && (i - j) % 2 == 0; };
    ExpectRight(options, body);
  }
}

TEST(AttentionOptions, P21_sink_is_in_natural_units) {
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

// Biases of tens of thousands in natural units, of which only differences count; a sink of the
// same size counts too.
TEST(AttentionOptions, AlibiOverALongContext) {
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    for (const bool row_index : {false, true}) {
      for (const bool rising : {false, true}) {
        for (const i64 split : {0, 1000}) {
          AttentionOptions options = Basic(Format::kBF16, Format::kBF16, 32768);
          options.q_len = {2};
          options.q_heads = options.kv_heads = 1;
          options.dim_qk = options.dim_vo = 16;
          options.alibi = true;
          options.alibi_row_index = row_index;
          options.alibi_slope = rising ? 0.5f : -0.5f;
          options.split_rows = split;
          SCOPED_TRACE(testing::Message() << row_index << rising << " split " << split);
          ExpectRight(options, body);
          const float bias_at_the_top = (row_index == rising) ? 16383.0f : 0.0f;
          options.sink = {bias_at_the_top + 2.0f};
          ExpectRight(options, body);
        }
      }
    }
  }
}

// Any finite sink, however far from the scores, is exact; and those that are not finite.
TEST(AttentionOptions, SinksOfAnySize) {
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    for (const float sink : {3e4f, 3e10f, 1e30f, 3e38f, -3e10f, -3e38f, -INFINITY}) {
      for (const i64 split : {0, 64}) {
        AttentionOptions options = Basic(Format::kBF16, Format::kBF16);
        options.sink.assign(4, sink);
        options.split_rows = split;
        SCOPED_TRACE(sink);
        ExpectRight(options, body);
      }
    }
    for (const float sink : {INFINITY, NAN}) {
      AttentionOptions options = Basic(Format::kBF16, Format::kBF16);
      options.sink.assign(4, sink);
      options.path = body.path;
      options.accuracy = body.accuracy;
      AttentionFixture fixture(options);
      ASSERT_TRUE(fixture.Run(body.target).ok());
      EXPECT_EQ(fixture.out(1, 2, 3) == 0.0f, sink == INFINITY);
      EXPECT_EQ(fixture.lse(1, 2) == INFINITY, sink == INFINITY);
      EXPECT_EQ(std::isnan(fixture.lse(1, 2)), std::isnan(sink));
    }
  }
}

// Weights are rounded, the sink is not: the rounding must not show where the sink dominates.
TEST(AttentionOptions, SinkDoesNotSeeTheRoundingOfWeights) {
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

TEST(AttentionOptions, P35_empty_rows_and_requests) {
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

TEST(AttentionOptions, P52_causal_with_more_queries_than_keys) {
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

TEST(AttentionOptions, P51_extreme_logits) {
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

TEST(AttentionOptions, P73_rope_in_the_kernel) {
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

}  // namespace
}  // namespace kvilt::cpu
