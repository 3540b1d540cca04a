// The judge is judged by closed forms, worked by hand.
#include "src/oracle/oracle.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "src/oracle/decode.h"
#include "src/oracle/tiny_request.h"

namespace kvilt::oracle {
namespace {

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

TEST(OracleDecode, PinnedValues) {
  EXPECT_EQ(DecodeFloat(DType::kE4M3, 0x7E), 448);
  EXPECT_EQ(DecodeFloat(DType::kE4M3, 0x01), std::ldexp(1, -9));
  EXPECT_EQ(DecodeFloat(DType::kE4M3, 0x08), std::ldexp(1, -6));
  EXPECT_EQ(DecodeFloat(DType::kE4M3, 0xB8), -1);
  EXPECT_TRUE(std::isnan(DecodeFloat(DType::kE4M3, 0x7F)));
  EXPECT_TRUE(std::isnan(DecodeFloat(DType::kE4M3, 0xFF)));
  EXPECT_EQ(DecodeFloat(DType::kE5M2, 0x7B), 57344);
  EXPECT_TRUE(std::isinf(DecodeFloat(DType::kE5M2, 0x7C)));
  EXPECT_TRUE(std::isnan(DecodeFloat(DType::kE5M2, 0x7D)));
  EXPECT_EQ(DecodeFloat(DType::kE5M2, 0x01), std::ldexp(1, -16));
  EXPECT_EQ(DecodeFloat(DType::kF16, 0x3C00), 1);
  EXPECT_EQ(DecodeFloat(DType::kF16, 0x0001), std::ldexp(1, -24));
  EXPECT_EQ(DecodeFloat(DType::kF16, 0xFBFF), -65504);
  EXPECT_EQ(DecodeFloat(DType::kBF16, 0xC040), -3);
  EXPECT_EQ(DecodeFloat(DType::kF32, 0x3FC00000), 1.5);
  EXPECT_TRUE(std::isnan(DecodeFloat(DType::kF32, 0xFFFFFFFF)));
  const double codes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (int code = 0; code < 8; ++code) {
    EXPECT_EQ(DecodeE2M1(code), codes[code]);
    EXPECT_EQ(DecodeE2M1(code + 8), -codes[code]);
  }
}

TEST(Oracle, WindowsUpToTheLimitOf64Bits) {
  Tiny tiny({{0}, {0}}, {{0}, {0}, {0}}, {{3}, {6}, {0}});
  tiny.request.window_left = std::numeric_limits<std::int64_t>::max();
  tiny.request.window_right = std::numeric_limits<std::int64_t>::max();
  EXPECT_DOUBLE_EQ(tiny.Out(0), 3);
  tiny.request.window_right = 0;
  EXPECT_DOUBLE_EQ(tiny.Out(0), 4.5);  // Row 0 is at key 1.
}

TEST(Oracle, UniformScoresGiveTheMean) {
  for (int n : {1, 2, 5, 300}) {
    std::vector<std::vector<float>> keys, values;
    double mean = 0;
    for (int j = 0; j < n; ++j) {
      keys.push_back({static_cast<float>(j), 1});
      values.push_back({static_cast<float>(j * j % 7)});
      mean += j * j % 7;
    }
    Tiny tiny({{0, 0}}, keys, values);
    EXPECT_NEAR(tiny.Out(), mean / n, 1e-14 * (1 + mean));
    EXPECT_NEAR(tiny.Lse(), std::log(n), 1e-14);
    tiny.request.lse_base = LseBase::kTwo;
    EXPECT_NEAR(tiny.Lse(), std::log2(n), 1e-14);
  }
}

TEST(Oracle, TwoKeysAreASigmoid) {
  Tiny tiny({{1}}, {{0.25f}, {1.5f}}, {{0}, {1}});
  EXPECT_NEAR(tiny.Out(), Sigmoid(1.25), 1e-15);
  tiny.request.sm_scale = 0.5f;
  EXPECT_NEAR(tiny.Out(), Sigmoid(0.625), 1e-15);
  tiny.request.q_scale = 3;
  EXPECT_NEAR(tiny.Out(), Sigmoid(1.875), 1e-15);
  tiny.request.logits_soft_cap = 2;
  EXPECT_NEAR(tiny.Out(), Sigmoid(2 * std::tanh(2.25 / 2) - 2 * std::tanh(0.375 / 2)), 1e-15);
}

TEST(Oracle, TheDefaultScaleIsOneOverRootOfTheHeadDim) {
  Tiny tiny({{1, 1, 1, 1}}, {{0, 0, 0, 0}, {1, 1, 1, 1}}, {{0}, {1}});
  tiny.request.sm_scale.reset();
  EXPECT_NEAR(tiny.Out(), Sigmoid(2), 1e-15);
}

TEST(Oracle, AlibiAndItsOrigins) {
  // Two rows, three keys: delta = 1.
  Tiny tiny({{0}, {0}}, {{0}, {0}, {0}}, {{1}, {0}, {0}});
  const float slope = 0.5f;
  tiny.request.alibi =
      Alibi{TensorView::Dense(&slope, DType::kF32, {1}), AlibiOrigin::kBottomRight};
  // Weights e^(0.5 j) up to a factor, whatever the row; the origin shows in lse.
  const double sum = 1 + std::exp(0.5) + std::exp(1.0);
  EXPECT_NEAR(tiny.Out(0), 1 / sum, 1e-15);
  EXPECT_NEAR(tiny.Lse(0), std::log(sum) - 0.5, 1e-15);  // Row 0 stands at key 1.
  EXPECT_NEAR(tiny.Lse(1), std::log(sum) - 1.0, 1e-15);
  tiny.request.alibi->origin = AlibiOrigin::kRowIndex;
  EXPECT_NEAR(tiny.Lse(0), std::log(sum), 1e-15);
  EXPECT_NEAR(tiny.Lse(1), std::log(sum) - 0.5, 1e-15);
  // After the cap the bias is linear; before it, capped.
  tiny.request.logits_soft_cap = 0.25f;
  EXPECT_NEAR(tiny.Lse(0), std::log(sum), 1e-15);
  tiny.request.bias_before_cap = true;
  const double capped = 1 + std::exp(0.25 * std::tanh(2)) + std::exp(0.25 * std::tanh(4));
  EXPECT_NEAR(tiny.Lse(0), std::log(capped), 1e-15);
}

TEST(Oracle, ASinkEntersTheDenominatorOnce) {
  Tiny tiny({{0}}, {{0}, {0}, {0}}, {{1}, {1}, {1}});
  const float sink = std::log(2.0f);
  tiny.request.sink = TensorView::Dense(&sink, DType::kF32, {1});
  EXPECT_NEAR(tiny.Out(), 3.0 / 5, 1e-7);
  EXPECT_NEAR(tiny.Lse(), std::log(5), 1e-7);
  EXPECT_NEAR(Attention(tiny.request).magnitude[0], 3.0 / 5, 1e-7);
  Tiny empty({{0}}, {}, {});
  empty.request.sink = TensorView::Dense(&sink, DType::kF32, {1});
  EXPECT_EQ(empty.Out(), 0);
  EXPECT_EQ(empty.Lse(), sink);
}

TEST(Oracle, P51_extreme_logits) {
  for (int n : {1, 2, 300}) {
    const std::string kv = std::to_string(n);
    const auto ln = Build("decode heads=2/1 data=extreme out=f32 kv=" + kv);
    const Reference natural = Attention(ln.request());
    const auto two = Build("decode heads=2/1 data=extreme cache=ragged lse=two kv=" + kv);
    const Reference binary = Attention(two.request());
    for (std::size_t h = 0; h < 2; ++h) {
      EXPECT_NEAR(natural.lse[h], -46340.95 + std::log(n), 1e-2);
      EXPECT_NEAR(binary.lse[h], -66855.86 + std::log2(n), 2e-2);
    }
    for (double out : natural.out) EXPECT_NEAR(out, 1, 1e-12);
  }
}

TEST(Oracle, P52_causal_rows_before_the_keys_are_empty) {
  Tiny tiny({{0}, {0}, {0}}, {{0}}, {{7}});
  tiny.request.mask = MaskMode::kCausal;
  EXPECT_EQ(tiny.Out(0), 0);
  EXPECT_EQ(tiny.Out(1), 0);
  EXPECT_EQ(tiny.Out(2), 7);
  EXPECT_EQ(tiny.Lse(0), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(tiny.Lse(2), 0);
  EXPECT_EQ(Attention(tiny.request).magnitude[0], 0);
}

TEST(Oracle, P58_weights_two_and_eight) {
  Tiny tiny({{1}}, {{std::log(2.0f)}, {std::log(8.0f)}}, {{0}, {1}});
  EXPECT_NEAR(tiny.Out(), 0.8, 1e-7);
  EXPECT_NEAR(tiny.Lse(), std::log(10), 1e-7);
}

TEST(Oracle, MasksAndWindowsLeaveTheMeanOfWhatIsSeen) {
  // Values 1, 2, 4, 8: every subset has its own mean. Two rows, so delta = 2.
  Tiny tiny({{0}, {0}}, {{0}, {0}, {0}, {0}}, {{1}, {2}, {4}, {8}});
  AttentionRequest& request = tiny.request;
  request.mask = MaskMode::kCausal;
  EXPECT_NEAR(tiny.Out(0), 7.0 / 3, 1e-14);
  EXPECT_NEAR(tiny.Out(1), 15.0 / 4, 1e-14);
  request.window_left = 1;
  EXPECT_NEAR(tiny.Out(0), 3, 1e-14);
  EXPECT_NEAR(tiny.Out(1), 6, 1e-14);
  request.mask = MaskMode::kNone;
  request.window_left = 0;
  request.window_right = 1;
  EXPECT_NEAR(tiny.Out(0), 6, 1e-14);
  EXPECT_NEAR(tiny.Out(1), 8, 1e-14);
  const std::vector<std::int64_t> positions = {0, 1};
  request.q_positions = std::span<const std::int64_t>(positions);
  EXPECT_NEAR(tiny.Out(0), 1.5, 1e-14);
  EXPECT_NEAR(tiny.Out(1), 3, 1e-14);
  request.q_positions = {};
  request.window_left = request.window_right = -1;
  // Rows 0b1001 and 0b0110, least significant bit first.
  std::uint8_t bits[] = {0x69};
  request.mask = MaskMode::kCustom;
  request.mask_bits = TensorView::Dense(bits, DType::kU8, {1});
  EXPECT_NEAR(tiny.Out(0), 4.5, 1e-14);
  EXPECT_NEAR(tiny.Out(1), 3, 1e-14);
  // Over the last two keys: row 0 sees the second of them, row 1 neither.
  bits[0] = 0x02;
  request.mask = MaskMode::kTree;
  EXPECT_NEAR(tiny.Out(0), 11.0 / 3, 1e-14);
  EXPECT_NEAR(tiny.Out(1), 1.5, 1e-14);
}

TEST(Oracle, P73_rotation_depends_on_the_distance) {
  // One pair: q.k = cos(distance * frequency). Decode at key 3 of 4.
  Tiny tiny({{1, 0}}, {{1, 0}, {1, 0}, {1, 0}, {1, 0}}, {{0}, {0}, {0}, {0}});
  Rope rope;
  tiny.request.rope = rope;
  const auto expected = [](double distance_scale, double first) {
    double sum = 0;
    for (int j = 0; j < 4; ++j) sum += std::exp(std::cos((first - j) * distance_scale));
    return std::log(sum);
  };
  EXPECT_NEAR(tiny.Lse(), expected(1, 3), 1e-14);
  tiny.request.rope->pairing = RopePairing::kInterleaved;
  EXPECT_NEAR(tiny.Lse(), expected(1, 3), 1e-14);
  tiny.request.rope->scale = 4;
  EXPECT_NEAR(tiny.Lse(), expected(0.25, 3), 1e-14);
  const std::vector<std::int64_t> positions = {1000000};
  tiny.request.q_positions = std::span<const std::int64_t>(positions);
  EXPECT_NEAR(tiny.Lse(), expected(0.25, 1000000), 1e-12);
}

TEST(Oracle, P73_pairings_and_frequencies) {
  // Elements 1 and 3 rotate together in `half` at r = 4, elements 2 and 3 when interleaved.
  const auto dot = [](Rope rope, std::vector<float> q, std::vector<float> k) {
    Tiny tiny({q}, {k, k}, {{0}, {0}});  // Position 1 against keys 0 and 1.
    tiny.request.rope = rope;
    return std::exp(tiny.Lse());
  };
  Rope rope;
  rope.theta = 100;
  // Pair 1 has frequency 100^(-2/4) = 0.1. Key 0 sees q rotated by 0.1: b' = sin 0.1.
  EXPECT_NEAR(dot(rope, {0, 1, 0, 0}, {0, 0, 0, 1}), std::exp(std::sin(0.1)) + 1, 1e-7);
  rope.pairing = RopePairing::kInterleaved;
  EXPECT_NEAR(dot(rope, {0, 0, 1, 0}, {0, 0, 0, 1}), std::exp(std::sin(0.1)) + 1, 1e-7);
  // rotary_dim 2 of 4: pair 0 alone, elements 0 and 1; the others pass.
  rope.pairing = RopePairing::kHalf;
  rope.rotary_dim = 2;
  EXPECT_NEAR(dot(rope, {1, 0, 0, 0}, {0, 1, 0, 0}), std::exp(std::sin(1.0)) + 1, 1e-7);
  EXPECT_NEAR(dot(rope, {0, 0, 1, 0}, {0, 0, 1, 0}), 2 * std::exp(1.0), 1e-6);
  // Proportional with rotary_dim 2 of 4: pairs (0, 2) and (1, 3), the second at rest.
  rope.frequency = RopeFrequency::kProportional;
  EXPECT_NEAR(dot(rope, {1, 0, 0, 0}, {0, 0, 1, 0}), std::exp(std::sin(1.0)) + 1, 1e-7);
  EXPECT_NEAR(dot(rope, {0, 1, 0, 0}, {0, 0, 0, 1}), 2, 1e-7);
  rope.rotary_dim = 4;
  EXPECT_NEAR(dot(rope, {0, 1, 0, 0}, {0, 0, 0, 1}), std::exp(std::sin(0.1)) + 1, 1e-7);
}

TEST(Oracle, P73_llama31_slows_long_waves_only) {
  // One pair with frequency 1: 2 pi per turn. original / wavelength is 10 / (2 pi) = 1.59.
  Tiny tiny({{1, 0}}, {{1, 0}, {1, 0}}, {{0}, {0}});
  Rope rope;
  rope.scale = 8;
  rope.llama31 = Rope::Llama31{1, 4, 10};
  const auto frequency = [&] {
    tiny.request.rope = rope;
    return std::acos(std::log(std::exp(tiny.Lse()) - std::exp(1.0)));
  };
  const double smooth = (10 / (2 * std::acos(-1.0)) - 1) / 3;
  EXPECT_NEAR(frequency(), (1 - smooth) / 8 + smooth, 1e-12);
  rope.llama31->original_length = 100;  // 15.9 turns: a short wave.
  EXPECT_NEAR(frequency(), 1, 1e-12);
  rope.llama31->original_length = 1;
  EXPECT_NEAR(frequency(), 0.125, 1e-12);
}

TEST(Oracle, GlobalsMultiplyKAndV) {
  Tiny tiny({{1}}, {{0.5f}, {1}}, {{2}, {3}});
  auto& ragged = std::get<RaggedKv>(tiny.request.segments[0].kv);
  ragged.k.global.value = 3;
  ragged.v.global.value = 0.5;
  EXPECT_NEAR(tiny.Out(), 1 + 0.5 * Sigmoid(1.5), 1e-14);
  const float per_head[] = {2};
  ragged.k.global = {1.0f, per_head, 1, {}, false};
  EXPECT_NEAR(tiny.Out(), 1 + 0.5 * Sigmoid(1.0), 1e-14);
}

// Scale (t, s) of a 4-token page with 4 scales lies at row s, column t when interleaved.
TEST(Oracle, InterleavedScalesAreATransposedTile) {
  for (const bool interleaved : {false, true}) {
    const auto data =
        Build(std::string("decode kv=4 page=4 heads=1/1 d=64 v_dtype=nvfp4 sigma=0 ") +
              "out=f32 scale_layout=" + (interleaved ? "interleaved4" : "linear"));
    const CacheSide& v = data.request().segments[0].v();
    const std::int64_t page = data.request().segments[0].paged()->table.indices[0];
    const auto* codes = static_cast<const std::uint8_t*>(v.data.data) + page * v.data.stride[0];
    const auto* scales =
        static_cast<const std::uint8_t*>(v.scales.data) + page * v.scales.stride[0];
    const Reference reference = Attention(data.request());
    for (int d = 0; d < 64; ++d) {
      double mean = 0;
      for (int t = 0; t < 4; ++t) {
        const int s = d / 16;
        const int code = (codes[t * 32 + d / 2] >> (d % 2 * 4)) & 15;
        const std::uint8_t scale = interleaved ? scales[s * 4 + t] : scales[t * 4 + s];
        mean += DecodeE2M1(code) * DecodeFloat(DType::kE4M3, scale) / 4;
      }
      EXPECT_NEAR(reference.out[static_cast<std::size_t>(d)], mean, 1e-12);
    }
  }
}

TEST(Oracle, PlacementDoesNotMatter) {
  const std::string rest = " heads=4/2 d=64 kv_dtype=nvfp4 global=0.5,2 mask=causal window=30 q=3";
  const Reference plain = Attention(Build("decode kv=77 ids=3" + rest).request());
  for (const char* other :
       {"cache=ragged", "page=1 layout=nhd", "pool=kv pad=3/1",
        "pool=rows v_layout=nhd table=padded", "scale_layout=interleaved4 page=8",
        "lengths=last_page_len index=i64 page=5", "segments=7,rest:ragged,9:page=2",
        "segments=70,rest,70"}) {
    const auto data = Build("decode kv=40,77 ids=9,3 " + std::string(other) + rest);
    const Reference reference = Attention(data.request());
    const std::size_t skip = plain.out.size();
    for (std::size_t i = 0; i < plain.out.size(); ++i) {
      ASSERT_EQ(reference.out[skip + i], plain.out[i]) << other;
    }
  }
}

TEST(Oracle, SharedSegmentsBelongToTheirOwners) {
  const std::string rest = " heads=2/1 d=32 kv_dtype=e4m3";
  const auto shared = Build("decode kv=40,50,20 shared=17:0+1" + rest);
  const auto flat = Build("decode kv=40,50,20 prefix=17" + rest);
  const Reference a = Attention(shared.request()), b = Attention(flat.request());
  for (std::size_t i = 0; i < 2 * 2 * 32; ++i) EXPECT_EQ(a.out[i], b.out[i]);
  EXPECT_NE(a.out[2 * 2 * 32], b.out[2 * 2 * 32]) << "request 2 owns no shared keys";
}

TEST(Oracle, SelectedRowsAreThoseOfTheWhole) {
  const auto data = Build("prefill b=2 q=9,4 kv=20 heads=2/1 d=16");
  const Reference whole = Attention(data.request());
  const Reference some = Attention(data.request(), 4);
  EXPECT_EQ(some.rows, (std::vector<std::int64_t>{0, 4, 8, 12}));
  for (std::size_t n = 0; n < some.rows.size(); ++n) {
    for (std::size_t i = 0; i < 32; ++i) {
      EXPECT_EQ(some.out[n * 32 + i], whole.out[static_cast<std::size_t>(some.rows[n]) * 32 + i]);
    }
  }
}

}  // namespace
}  // namespace kvilt::oracle
