// The NVFP4 block writer: bits against an independent reference, floors on Gaussian data, and the
// conventions of the global multiplier.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "src/contract/formats.h"

namespace kvilt::contract {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kGrid[8] = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};

u32 NearestGridCode(double y) {
  u32 best = 0;
  const double magnitude = std::min(std::abs(y), 8.0);
  for (u32 code = 1; code < 8; ++code) {
    const double former = std::abs(magnitude - kGrid[best]);
    const double now = std::abs(magnitude - kGrid[code]);
    if (now < former || (now == former && code % 2 == 0)) best = code;
  }
  return best | (std::signbit(y) ? 8u : 0u);
}

struct ReferenceBlock {
  u8 scale = 0;
  std::vector<u32> codes;
  float error = 0;
  float wanted = 0;
};

// The formula of SEMANTICS section 1, one volatile f32 at a time so that nothing is fused.
ReferenceBlock ReferenceCandidate(const std::vector<float>& x, float amax, float global,
                                  float divisor) {
  ReferenceBlock block;
  const volatile float denominator = divisor * global;
  const volatile float wanted = amax / denominator;
  block.wanted = wanted;
  block.scale = amax == 0 ? u8{0} : EncodeE4M3(wanted);
  const float scale = DecodeE4M3(block.scale);
  float q[16];
  for (std::size_t i = 0; i < 16; ++i) {
    u32 code = std::signbit(x[i]) ? 8u : 0u;
    if (scale != 0) {
      const volatile float step = scale * global;
      const volatile float reciprocal = 1.0f / step;
      const volatile float y = x[i] * reciprocal;
      code = NearestGridCode(y);
      code = (code & 7u) | (std::signbit(x[i]) ? 8u : 0u);
    }
    if (std::isnan(x[i])) code = 0;
    block.codes.push_back(code);
    const float value = static_cast<float>(code >= 8 ? -kGrid[code - 8] : kGrid[code]);
    const volatile float product = value * scale;
    const volatile float decoded = product * global;
    const volatile float difference = x[i] - decoded;
    const volatile float square = difference * difference;
    q[i] = square;
  }
  for (int half : {8, 4, 2, 1}) {
    for (int i = 0; i < half; ++i) {
      const volatile float sum = q[i] + q[i + half];
      q[i] = sum;
    }
  }
  block.error = q[0];
  return block;
}

ReferenceBlock ReferenceWrite(const std::vector<float>& source, float global, bool four_over_six) {
  std::vector<float> x = source;
  float amax = 0;
  for (float& value : x) {
    if (std::abs(value) < std::numeric_limits<float>::min()) value = std::copysign(0.0f, value);
    if (!std::isnan(value)) amax = std::max(amax, std::abs(value));
  }
  const ReferenceBlock six = ReferenceCandidate(x, amax, global, 6.0f);
  if (!four_over_six) return six;
  const ReferenceBlock four = ReferenceCandidate(x, amax, global, 4.0f);
  return four.error < six.error ? four : six;
}

void ExpectAsReference(const std::vector<float>& x, float global, bool four_over_six) {
  const Nvfp4Block block = EncodeNvfp4Block(x.data(), global, four_over_six);
  const ReferenceBlock expected = ReferenceWrite(x, global, four_over_six);
  ASSERT_EQ(block.scale, expected.scale);
  for (std::size_t i = 0; i < 16; ++i) {
    const u32 code = i % 2 == 0 ? block.codes[i / 2] & 15u : block.codes[i / 2] >> 4;
    ASSERT_EQ(code, expected.codes[i]) << "element " << i << " = " << x[i];
  }
  float amax = 0;
  int nan = 0;
  int infinite = 0;
  for (float value : x) {
    if (!std::isnan(value) && std::abs(value) >= std::numeric_limits<float>::min()) {
      amax = std::max(amax, std::abs(value));
    }
    nan += std::isnan(value);
    infinite += std::isinf(value);
  }
  ASSERT_EQ(block.nan, nan);
  ASSERT_EQ(block.infinite, infinite);
  ASSERT_EQ(block.saturated, expected.wanted > 448.0f);
  ASSERT_EQ(block.flushed, amax > 0 && expected.scale == 0);
}

// Moves amax to within an ulp of a tie of the scale and the others to ties of the code, where a
// quotient rounded otherwise shows.
void PlaceNearTies(std::vector<float>& x, float global, std::mt19937& random) {
  const auto nudge = [&](float value) {
    const u32 step = static_cast<u32>(random() % 3);
    return step == 0   ? std::nextafter(value, 0.0f)
           : step == 1 ? value
                       : std::nextafter(value, kInf);
  };
  const u8 code = static_cast<u8>(8 + random() % 0x70);
  const float tie = (DecodeE4M3(code) + DecodeE4M3(static_cast<u8>(code + 1))) / 2;
  x[0] = nudge(tie * (6.0f * global));
  const float scale = DecodeE4M3(EncodeE4M3(x[0] / (6.0f * global)));
  const float code_ties[7] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
  for (std::size_t i = 1; i < x.size(); ++i) {
    const float value = nudge(code_ties[random() % 7] * (scale * global));
    x[i] = random() % 2 == 0 ? value : -value;
  }
}

TEST(Nvfp4Writer, BitsAgreeWithTheFormulaOnRandomBlocks) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> exponent(-40.0f, 40.0f);
  const float specials[] = {0.0f, -0.0f, kNan, -kNan, kInf, -kInf, 1e-40f, -1e-40f, 3e38f};
  for (int round = 0; round < 60000; ++round) {
    std::vector<float> x(16);
    const float size = std::exp2(exponent(random));
    for (float& value : x) value = normal(random) * size;
    if (round % 3 == 0) x[random() % 16] = specials[random() % 9];
    const float global = round % 2 == 0 ? std::exp2(exponent(random)) : size * 0.01f;
    if (round % 5 == 0) PlaceNearTies(x, global, random);
    ExpectAsReference(x, global, round % 4 < 2);
    if (HasFatalFailure()) return;
  }
}

RC_GTEST_PROP(Nvfp4Writer, BitsAgreeWithTheFormulaOnAnyBits, (bool four_over_six)) {
  std::vector<float> x;
  for (int i = 0; i < 16; ++i) x.push_back(BitsFloat(*rc::gen::arbitrary<u32>()));
  const int power = *rc::gen::inRange(-100, 101);
  ExpectAsReference(x, std::ldexp(1.0f, power), four_over_six);
}

TEST(Nvfp4Writer, TiesOfTheCodeAreBrokenToEven) {
  // amax 6 and global 1 give scale 1, so y = x.
  const std::vector<float> x = {6.0f,  0.25f,  0.75f,  1.25f,  1.75f,  2.5f,  3.5f,  5.0f,
                                -6.0f, -0.25f, -0.75f, -1.25f, -1.75f, -2.5f, -3.5f, -5.0f};
  const Nvfp4Block block = EncodeNvfp4Block(x.data(), 1.0f, false);
  EXPECT_EQ(block.scale, 0x38);
  const u32 expected[16] = {7, 0, 2, 2, 4, 4, 6, 6, 15, 8, 10, 10, 12, 12, 14, 14};
  for (int i = 0; i < 8; ++i) EXPECT_EQ(block.codes[i], expected[2 * i] | expected[2 * i + 1] << 4);
}

TEST(Nvfp4Writer, InfinityTakesTheLargestScale) {
  std::vector<float> x(16, 1000.0f);
  x[3] = -kInf;
  x[4] = kNan;
  const Nvfp4Block block = EncodeNvfp4Block(x.data(), 1.0f, true);
  EXPECT_EQ(DecodeE4M3(block.scale), 448.0f);
  EXPECT_EQ(block.codes[1] >> 4, 15);
  EXPECT_EQ(block.codes[2] & 15, 0);
  EXPECT_EQ(block.codes[0] & 15, 4);  // 1000 / 448 = 2.23
  EXPECT_EQ(block.infinite, 1);
  EXPECT_EQ(block.nan, 1);
  EXPECT_EQ(block.saturated, 1);
}

// ---------------------------------------------------------------- accuracy

std::vector<float> Gaussian(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

struct RoundTrip {
  std::vector<float> values;
  int saturated = 0;
  int flushed = 0;
};

RoundTrip Through(const std::vector<float>& x, float global, bool four_over_six = false) {
  RoundTrip result;
  for (std::size_t begin = 0; begin < x.size(); begin += 16) {
    const Nvfp4Block block = EncodeNvfp4Block(&x[begin], global, four_over_six);
    for (std::size_t i = 0; i < 16; ++i) {
      const u32 code = i % 2 == 0 ? block.codes[i / 2] & 15u : block.codes[i / 2] >> 4;
      result.values.push_back(DequantizedNvfp4(code, block.scale, global));
    }
    result.saturated += block.saturated;
    result.flushed += block.flushed;
  }
  return result;
}

double RelativeL2(const std::vector<float>& got, const std::vector<float>& want,
                  std::size_t begin = 0) {
  double error = 0;
  double norm = 0;
  for (std::size_t i = begin; i < want.size(); ++i) {
    error += std::pow(static_cast<double>(got[i]) - want[i], 2);
    norm += std::pow(static_cast<double>(want[i]), 2);
  }
  return std::sqrt(error / norm);
}

TEST(Nvfp4Writer, P27_four_over_six_lowers_the_floor_on_gaussian_data) {
  const std::vector<float> x = Gaussian(4096 * 128, 1);
  const float global = 5.0f / 2688.0f;
  const RoundTrip plain = Through(x, global);
  const RoundTrip both = Through(x, global, true);
  EXPECT_NEAR(RelativeL2(plain.values, x), 0.0951, 4e-4);
  EXPECT_NEAR(RelativeL2(both.values, x), 0.0869, 4e-4);
  for (std::size_t begin = 0; begin < x.size(); begin += 16) {
    double plain_error = 0;
    double both_error = 0;
    for (std::size_t i = begin; i < begin + 16; ++i) {
      plain_error += std::pow(static_cast<double>(plain.values[i]) - x[i], 2);
      both_error += std::pow(static_cast<double>(both.values[i]) - x[i], 2);
    }
    ASSERT_LE(both_error, plain_error * (1 + 1e-5)) << "block " << begin / 16;
  }
}

TEST(Nvfp4Writer, P27_block_near_five_takes_the_scale_of_four) {
  std::vector<float> x;
  for (int i = 0; i < 16; ++i) x.push_back(i % 2 == 0 ? 5.1f : 4.9f);
  EXPECT_EQ(DecodeE4M3(EncodeNvfp4Block(x.data(), 1.0f, false).scale), 0.875f);
  EXPECT_EQ(DecodeE4M3(EncodeNvfp4Block(x.data(), 1.0f, true).scale), 1.25f);
}

TEST(Nvfp4Writer, P11_only_the_convention_of_2688_keeps_bulk_and_sink) {
  struct Row {
    float sink, global_divisor;  // Divisor 0: global = 1.
    double bulk_error, bulk_tolerance;
    double sink_value;  // 0: not looked at.
  };
  // Divisors amax/6, amax/448, amax/2688; the table of the reported case.
  const Row rows[] = {
      {42e3f, 0, 0.095, 1e-3, 2688},  {42e3f, 6, 1.000, 1e-6, 42e3},
      {42e3f, 448, 0.122, 2e-3, 0},   {42e3f, 2688, 0.095, 1e-3, 42e3},
      {125e3f, 0, 0.095, 1e-3, 2688}, {125e3f, 6, 1.000, 1e-6, 125e3},
      {125e3f, 448, 0.351, 5e-3, 0},  {125e3f, 2688, 0.102, 1e-3, 125e3},
  };
  for (const Row& row : rows) {
    std::vector<float> k = Gaussian(4096 * 128, 2);
    k[3] = row.sink;
    k[77] = -row.sink;
    const float global = row.global_divisor == 0 ? 1.0f : row.sink / row.global_divisor;
    const RoundTrip result = Through(k, global);
    EXPECT_NEAR(RelativeL2(result.values, k, 128), row.bulk_error, row.bulk_tolerance)
        << row.sink << " / " << row.global_divisor;
    if (row.sink_value != 0) {
      EXPECT_NEAR(result.values[3], row.sink_value, row.sink_value * 1e-6);
      EXPECT_NEAR(result.values[77], -row.sink_value, row.sink_value * 1e-6);
    }
    EXPECT_EQ(result.saturated, row.global_divisor == 0 ? 2 : 0);
    if (row.global_divisor == 6) {
      EXPECT_GE(result.flushed, 4095 * 8) << "every block of the bulk is lost, and counted";
    }
  }
}

TEST(Nvfp4Writer, P12_blocks_outside_the_window_are_counted) {
  for (float g : {1.0f, 0.013f, 1e-6f, 2048.0f}) {
    const float sizes[] = {2700, 2688, 1, 0.05f, 0.005f};
    // 1/6 = 0.16667 -> 0.171875 (11 * 2^-6); 0.05/6 is 4.27 subnormal units of 2^-9.
    const float scales[] = {448, 448, 0.171875f, 4.0f / 512, 0};
    for (int i = 0; i < 5; ++i) {
      std::vector<float> x(16, 0.0f);
      x[5] = g * sizes[i];
      const Nvfp4Block block = EncodeNvfp4Block(x.data(), g, false);
      EXPECT_EQ(DecodeE4M3(block.scale), scales[i]) << g << " " << sizes[i];
      EXPECT_EQ(block.saturated, i == 0);
      EXPECT_EQ(block.flushed, i == 4);
      EXPECT_EQ(block.codes[2] >> 4, i == 4 ? 0 : 7);
    }
  }
}

TEST(Nvfp4Writer, P13_the_reciprocal_of_the_global_destroys_the_data) {
  const std::vector<float> x = Gaussian(256 * 128, 3);
  const float global = 5.0f / 2688.0f;
  EXPECT_LT(RelativeL2(Through(x, global).values, x), 0.097);
  EXPECT_GT(1.0f / global, 64.0f) << "the range check of the API sees it";
  EXPECT_GT(RelativeL2(Through(x, 1.0f / global).values, x), 0.9) << "nearly all is flushed";
}

}  // namespace
}  // namespace kvilt::contract
