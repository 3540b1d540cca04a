#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <stdlib.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "cli/inspect/inspection.h"
#include "cli/inspect/side_view.h"

namespace kvilt::cli {
namespace {

constexpr std::int64_t kPages = 12;
constexpr std::int64_t kPageSize = 16;
constexpr std::int64_t kHeads = 2;

// An NVFP4 V side [kPages, kPageSize, kHeads, head_dim] whose scales are set one by one.
struct Fixture {
  explicit Fixture(std::int64_t head_dim, ScaleLayout written = ScaleLayout::kLinear)
      : blocks(head_dim / 16), layout(written) {
    codes.assign(static_cast<std::size_t>(kPages * kPageSize * kHeads * head_dim / 2), 0x17);
    scales.assign(static_cast<std::size_t>(kPages * kPageSize * kHeads * blocks), 0x38);
    side.data =
        TensorView::Dense(codes.data(), DType::kNVFP4, {kPages, kPageSize, kHeads, head_dim / 2});
    side.scales =
        TensorView::Dense(scales.data(), DType::kE4M3, {kPages, kPageSize, kHeads, blocks});
    for (std::int64_t page = 0; page < kPages; ++page) spans.push_back({page, 0, kPageSize});
  }

  // Where the writer puts the scale (t, s) of a head.
  std::uint8_t& Scale(std::int64_t page, std::int64_t t, std::int64_t head, std::int64_t s) {
    std::int64_t row = t;
    std::int64_t column = s;
    if (layout == ScaleLayout::kInterleaved4) {
      row = 4 * (t / 4) + s / (blocks / 4);
      column = s % (blocks / 4) * 4 + t % 4;
    }
    return scales[static_cast<std::size_t>(((page * kPageSize + row) * kHeads + head) * blocks +
                                           column)];
  }

  // log2 of every scale = token + block + noise, each Gaussian with its deviation.
  void Fill(double token_sigma, double block_sigma, double noise_sigma, unsigned seed = 1) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    for (std::int64_t head = 0; head < kHeads; ++head) {
      std::vector<double> by_block(static_cast<std::size_t>(blocks));
      for (double& x : by_block) x = block_sigma * normal(random);
      for (std::int64_t row = 0; row < kPages * kPageSize; ++row) {
        const double by_token = token_sigma * normal(random);
        for (std::int64_t s = 0; s < blocks; ++s) {
          const double log2_scale =
              by_token + by_block[static_cast<std::size_t>(s)] + noise_sigma * normal(random);
          // An e4m3 byte is nearly linear in log2: 8 steps a binade, 1.0 is 0x38.
          const double byte = std::round(0x38 + 8 * log2_scale);
          Scale(row / kPageSize, row % kPageSize, head, s) =
              static_cast<std::uint8_t>(std::min(126.0, std::max(1.0, byte)));
        }
      }
    }
  }

  ScaleOrder Order() const { return MeasureScaleOrder(side, spans, kPageSize, true); }

  std::int64_t blocks;
  ScaleLayout layout;
  std::vector<std::uint8_t> codes, scales;
  CacheSide side;
  std::vector<RowSpan> spans;
};

// ---------------------------------------------------------------- the order of scales

// The same scales written in either order: each is told, by `evidence`, and readings change places.
void ExpectTold(double token_sigma, double block_sigma, std::string_view evidence) {
  for (const std::int64_t head_dim : {64, 128, 256}) {
    Fixture linear(head_dim);
    linear.Fill(token_sigma, block_sigma, 0.3);
    const ScaleOrder a = linear.Order();
    EXPECT_EQ(a.verdict, ScaleOrderVerdict::kLinear) << head_dim;
    EXPECT_EQ(a.decided_by, evidence) << head_dim;
    Fixture interleaved(head_dim, ScaleLayout::kInterleaved4);
    interleaved.Fill(token_sigma, block_sigma, 0.3);
    const ScaleOrder b = interleaved.Order();
    EXPECT_EQ(b.verdict, ScaleOrderVerdict::kInterleaved4) << head_dim;
    EXPECT_EQ(b.decided_by, evidence) << head_dim;
    EXPECT_NEAR(a.tokens.linear, b.tokens.interleaved4, 1e-9);
    EXPECT_NEAR(a.channels.linear, b.channels.interleaved4, 1e-9);
  }
}

TEST(ScaleOrder, P05_LogNormalTokensTellTheOrderInBothDirections) {
  ExpectTold(0.5, 0, "tokens");
  ExpectTold(1.5, 0, "tokens");
}

TEST(ScaleOrder, ChannelsTellTheOrderInBothDirections) {
  ExpectTold(0, 0.5, "channels");
  ExpectTold(0.5, 1.0, "channels");
}

// Blocks whose size drifts look like tokens to the wrong order. Keys of real models do this.
TEST(ScaleOrder, DriftingChannelsDoNotMislead) {
  for (const ScaleLayout layout : {ScaleLayout::kLinear, ScaleLayout::kInterleaved4}) {
    Fixture drift(64, layout);
    std::mt19937 random(7);
    std::normal_distribution<double> normal;
    for (std::int64_t head = 0; head < kHeads; ++head) {
      for (std::int64_t s = 0; s < 4; ++s) {
        double level = 0;
        for (std::int64_t row = 0; row < kPages * kPageSize; ++row) {
          level = 0.9 * level + 0.4 * normal(random);
          drift.Scale(row / kPageSize, row % kPageSize, head, s) =
              static_cast<std::uint8_t>(std::lround(0x38 + 8 * (level + 0.2 * normal(random))));
        }
      }
    }
    const ScaleOrder order = drift.Order();
    const double wrong_by_tokens =
        layout == ScaleLayout::kLinear ? -order.tokens.sigmas : order.tokens.sigmas;
    EXPECT_GT(wrong_by_tokens, kVerdictSigmas);  // Tokens alone would say the opposite.
    EXPECT_EQ(order.verdict, layout == ScaleLayout::kLinear ? ScaleOrderVerdict::kLinear
                                                            : ScaleOrderVerdict::kInterleaved4);
  }
}

TEST(ScaleOrder, IndependentScalesAreUndecidable) {
  EXPECT_TRUE(rc::check("iid scales never get a verdict", [](unsigned seed) {
    for (const ScaleLayout layout : {ScaleLayout::kLinear, ScaleLayout::kInterleaved4}) {
      Fixture iid(64, layout);
      iid.Fill(0, 0, 1.0, seed);
      RC_ASSERT(iid.Order().verdict == ScaleOrderVerdict::kUndecidable);
    }
  }));
}

TEST(ScaleOrder, EqualScalesAndFewTokensAreUndecidable) {
  Fixture equal(64);
  EXPECT_EQ(equal.Order().verdict, ScaleOrderVerdict::kUndecidable);
  Fixture few(64);
  few.Fill(1.0, 0.5, 0.3);
  few.spans = {{0, 0, kPageSize}};  // Four groups.
  EXPECT_EQ(few.Order().verdict, ScaleOrderVerdict::kUndecidable);
  EXPECT_EQ(few.Order().groups, 0);
}

TEST(ScaleOrder, NotApplicableWhereInterleavingIsImpossible) {
  Fixture odd(48);  // S = 3
  EXPECT_EQ(odd.Order().verdict, ScaleOrderVerdict::kNotApplicable);
  Fixture ragged(64);
  EXPECT_EQ(MeasureScaleOrder(ragged.side, ragged.spans, kPageSize, false).verdict,
            ScaleOrderVerdict::kNotApplicable);
}

TEST(ScaleOrder, NanAndZeroScalesAreSurvived) {
  Fixture fixture(64);
  fixture.Fill(1.0, 0.5, 0.3);
  fixture.scales[3] = 0x7F;
  fixture.scales[900] = 0;
  const ScaleOrder order = fixture.Order();
  EXPECT_EQ(order.verdict, ScaleOrderVerdict::kLinear);
  EXPECT_EQ(order.groups, kPages * kPageSize / 4 * kHeads - 1);  // The group with NaN is left out.
}

// ---------------------------------------------------------------- counts

TEST(SideStats, CountsScalesByWhatTheyMean) {
  Fixture fixture(64);
  fixture.Scale(0, 0, 0, 0) = 0x7E;  // 448
  fixture.Scale(0, 1, 0, 0) = 0x7F;  // NaN
  fixture.Scale(0, 2, 0, 0) = 0x00;  // Codes 0x17 have no sign: not known to be flushed.
  fixture.Scale(0, 3, 0, 0) = 0x00;
  fixture.Scale(0, 4, 0, 0) = 0xB8;  // -1
  fixture.Scale(0, 5, 0, 0) = 0x01;  // 2^-9
  fixture.codes[static_cast<std::size_t>(3 * kHeads * 32)] =
      0x08;  // Token 3, head 0: a negative zero.
  const SideStats stats = MeasureSide(fixture.side, fixture.spans);
  EXPECT_EQ(stats.scales.blocks, kPages * kPageSize * kHeads * 4);
  EXPECT_EQ(stats.scales.at_max, 1);
  EXPECT_EQ(stats.scales.nan, 1);
  EXPECT_EQ(stats.scales.zero, 2);
  EXPECT_EQ(stats.scales.flushed, 1);
  EXPECT_EQ(stats.scales.negative, 1);
  EXPECT_EQ(stats.scales.min, 0.001953125);
  EXPECT_EQ(stats.scales.max, 448.0);
  EXPECT_EQ(stats.nan, 16);
  EXPECT_EQ(stats.heads[0].max_abs, 448.0 * 6);
  EXPECT_EQ(stats.heads[1].max_abs, 6.0);
}

TEST(SideStats, MagnitudesFollowTheDeclaredScaleLayoutAndGlobals) {
  Fixture fixture(64, ScaleLayout::kInterleaved4);
  fixture.side.scale_layout = ScaleLayout::kInterleaved4;
  const float globals[] = {0.5f, 4.0f};
  fixture.side.global.array = globals;
  fixture.side.global.array_size = 2;
  fixture.Scale(1, 6, 1, 3) = 0x40;  // 2
  fixture.codes[static_cast<std::size_t>(((kPageSize + 6) * kHeads + 1) * 32 + 3 * 8)] =
      0x0F;  // -6
  EXPECT_EQ(SideView(fixture.side).Scale(1, 6, 1, 3), 0x40);
  const SideStats stats = MeasureSide(fixture.side, fixture.spans);
  EXPECT_EQ(stats.heads[0].max_abs, 3.0);
  EXPECT_EQ(stats.heads[1].max_abs, 48.0);
}

// docs/formats.md, section 2: token 6, block 5 of S = 8.
TEST(SideView, WorkedExampleOfTheScaleLayouts) {
  std::vector<std::uint8_t> codes(8 * 64), scales(8 * 8);
  for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<std::uint8_t>(i);
  CacheSide side;
  side.data = TensorView::Dense(codes.data(), DType::kNVFP4, {1, 8, 1, 64});
  side.scales = TensorView::Dense(scales.data(), DType::kE4M3, {1, 8, 1, 8});
  EXPECT_EQ(SideView(side).Scale(0, 6, 0, 5), 53);
  side.scale_layout = ScaleLayout::kInterleaved4;
  EXPECT_EQ(SideView(side).Scale(0, 6, 0, 5), 54);
}

TEST(SideStats, DecodesEveryFormat) {
  const auto first = [](DType dtype, std::uint64_t bits) {
    std::uint64_t storage[2] = {bits, 0};
    CacheSide side;
    side.data = TensorView::Dense(storage, dtype, {1, 1, 1});
    double value[1];
    SideView(side).Decode(0, 0, 0, value);
    return value[0];
  };
  EXPECT_EQ(first(DType::kF32, 0xC0490FDB), -3.14159274101257324);
  EXPECT_EQ(first(DType::kBF16, 0x3FC0), 1.5);
  EXPECT_EQ(first(DType::kBF16, 0x0001), std::ldexp(1.0, -133));
  EXPECT_EQ(first(DType::kF16, 0x7BFF), 65504.0);
  EXPECT_EQ(first(DType::kF16, 0x8001), -std::ldexp(1.0, -24));
  EXPECT_TRUE(std::isinf(first(DType::kF16, 0x7C00)));
  EXPECT_EQ(first(DType::kE4M3, 0xFE), -448.0);
  EXPECT_TRUE(std::isnan(first(DType::kE4M3, 0xFF)));
  EXPECT_EQ(first(DType::kE5M2, 0x7B), 57344.0);
  EXPECT_TRUE(std::isinf(first(DType::kE5M2, 0x7C)));
  EXPECT_TRUE(std::isnan(first(DType::kE5M2, 0x7F)));
}

// ---------------------------------------------------------------- the whole

class InspectionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/kvilt_inspect_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Inspection InspectSides(const CacheSide& k, const CacheSide& v) {
    std::vector<std::int32_t> indices;
    for (int page = 0; page < kPages; ++page) indices.push_back(page);
    const std::int32_t indptr[] = {0, kPages};
    const std::int32_t kv_len[] = {kPages * kPageSize};
    PagedKv cache{k, v, {}};
    cache.table.indptr = std::span<const std::int32_t>(indptr);
    cache.table.indices = std::span<const std::int32_t>(indices);
    cache.table.kv_len = std::span<const std::int32_t>(kv_len);
    EXPECT_TRUE(core::SaveCacheFile(folder_ + "/a", {cache, {}}).ok());
    file_ = core::TensorFile::Load(folder_ + "/a").value();
    return Inspect(file_).value();
  }

  std::string folder_;
  core::TensorFile file_;
};

TEST_F(InspectionTest, ASwizzledScaleReadAsLinearIsAProblem) {
  Fixture k(64);
  k.Fill(1.0, 0.5, 0.3);
  Fixture v(64, ScaleLayout::kInterleaved4);
  v.Fill(1.0, 0.5, 0.3);
  const Inspection wrong = InspectSides(k.side, v.side);  // V declared linear.
  ASSERT_EQ(wrong.problems.size(), 1u);
  EXPECT_EQ(wrong.problems[0], "v: scales are declared linear but look interleaved4 (by tokens)");
  v.side.scale_layout = ScaleLayout::kInterleaved4;
  v.side.scale_row_blocks = 4;
  EXPECT_TRUE(InspectSides(k.side, v.side).problems.empty());
}

TEST_F(InspectionTest, DeclarationsAndOwnersAreProblemsInTextAndJson) {
  Fixture fixture(64);
  fixture.Fill(1.0, 0.5, 0.3);
  CacheSide v = fixture.side;
  v.global.value = 1e9f;
  InspectSides(fixture.side, v);
  Segment segment = core::SegmentOf(file_).value();
  segment.owners = {0, 3};
  const std::vector<core::NamedTensor> queries = {
      {"q", TensorView::Dense(fixture.codes.data(), DType::kBF16, {1, 2, 64})}};
  ASSERT_TRUE(core::SaveCacheFile(folder_ + "/owned", segment, queries).ok());
  const core::TensorFile file = core::TensorFile::Load(folder_ + "/owned").value();
  const Inspection inspection = Inspect(file).value();
  ASSERT_EQ(inspection.problems.size(), 2u);
  EXPECT_EQ(inspection.problems[0].substr(0, 31), "v: global is 1000000000, expect");
  EXPECT_EQ(inspection.problems[1],
            "owners: request 3, but the queries in the file are of 1 request");
  EXPECT_EQ(nlohmann::json::parse(ToJson(inspection))["problems"],
            nlohmann::json(inspection.problems));
  EXPECT_NE(ToText(inspection).find(inspection.problems[0]), std::string::npos);
}

TEST_F(InspectionTest, TextAndJsonSayTheSame) {
  Fixture k(64);
  k.Fill(1.0, 0.5, 0.3);
  k.Scale(0, 0, 0, 0) = 0xFF;
  const Inspection inspection = InspectSides(k.side, k.side);
  EXPECT_EQ(inspection.problems.size(), 2u);
  const auto json = nlohmann::json::parse(ToJson(inspection));
  EXPECT_EQ(json["cache"]["k"]["nan"], 16);
  EXPECT_EQ(json["cache"]["k"]["scales"]["histogram"]["255"], 1);
  EXPECT_EQ(json["cache"]["v"]["scales"]["order"]["verdict"], "linear");
  EXPECT_EQ(json["cache"]["bytes_per_token"], 2 * 2 * 36.0);
  EXPECT_EQ(json["problems"][0], "k: 16 of 24576 elements are NaN");
  const std::string text = ToText(inspection);
  EXPECT_NE(text.find("k: 16 of 24576 elements are NaN"), std::string::npos) << text;
  EXPECT_NE(text.find("Paged cache, page size 16, 12 pages"), std::string::npos) << text;
}

TEST_F(InspectionTest, OtherFilesAreListedAndBrokenOnesRefused) {
  float x[4] = {};
  const std::vector<core::NamedTensor> tensors = {{"w", TensorView::Dense(x, DType::kF32, {4})}};
  ASSERT_TRUE(core::WriteSafetensors(folder_ + "/b", tensors, {}).ok());
  const core::TensorFile other = core::TensorFile::Load(folder_ + "/b").value();
  const Inspection inspection = Inspect(other).value();
  EXPECT_FALSE(inspection.cache.has_value());
  EXPECT_NE(ToText(inspection).find("Not a cache"), std::string::npos);
  // The results of `kvilt run` have the schema's version and no cache.
  const std::vector<core::NamedTensor> results = {{"out", tensors[0].second}};
  ASSERT_TRUE(core::WriteSafetensors(folder_ + "/b", results, {{"kvilt.version", "1"}}).ok());
  const core::TensorFile result_file = core::TensorFile::Load(folder_ + "/b").value();
  EXPECT_FALSE(Inspect(result_file)->cache.has_value());
  ASSERT_TRUE(core::WriteSafetensors(folder_ + "/b", tensors,
                                     {{"kvilt.version", "1"}, {"kvilt.cache", "paged"}})
                  .ok());
  const core::TensorFile broken = core::TensorFile::Load(folder_ + "/b").value();
  EXPECT_EQ(Inspect(broken).status().message(), "k.data: no such tensor in the file");
}

}  // namespace
}  // namespace kvilt::cli
