#include "src/api/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace kvilt::api {
namespace {

TEST(RopeFrequencies, RotaryDividesByRotaryDim) {
  Rope rope;
  rope.theta = 10000.0;
  rope.rotary_dim = 4;
  EXPECT_EQ(RotaryElements(rope, 8), 4);
  const auto f = RopeFrequencies(rope, 8);
  ASSERT_EQ(f.size(), 2U);
  EXPECT_DOUBLE_EQ(f[0], 1.0);
  EXPECT_DOUBLE_EQ(f[1], 0.01);
}

TEST(RopeFrequencies, ZeroMeansTheWholeHead) {
  Rope rope;
  rope.theta = 256.0;
  const auto f = RopeFrequencies(rope, 8);
  ASSERT_EQ(f.size(), 4U);
  for (int i = 0; i < 4; ++i) EXPECT_DOUBLE_EQ(f[static_cast<std::size_t>(i)], std::pow(4.0, -i));
}

TEST(RopeFrequencies, ProportionalSpansTheHeadAndEndsInZeros) {
  Rope rope;
  rope.theta = 10000.0;
  rope.frequency = RopeFrequency::kProportional;
  rope.rotary_dim = 4;
  EXPECT_EQ(RotaryElements(rope, 8), 8);
  const auto f = RopeFrequencies(rope, 8);
  ASSERT_EQ(f.size(), 4U);
  EXPECT_DOUBLE_EQ(f[0], 1.0);
  EXPECT_DOUBLE_EQ(f[1], 0.1);
  EXPECT_EQ(f[2], 0.0);
  EXPECT_EQ(f[3], 0.0);
}

TEST(RopeFrequencies, ScaleSlowsEveryPair) {
  Rope rope;
  rope.rotary_dim = 4;
  rope.scale = 4.0;
  const auto f = RopeFrequencies(rope, 4);
  EXPECT_DOUBLE_EQ(f[0], 0.25);
  EXPECT_DOUBLE_EQ(f[1], 0.0025);
}

// Pair 1 of head dim 4 has frequency theta^(-1/2): theta is chosen for the number of turns over the
// original context.
double SmoothedShare(double turns) {
  constexpr double kLength = 8192.0;
  const double frequency = turns * 2.0 * std::numbers::pi / kLength;
  Rope rope;
  rope.theta = 1.0 / (frequency * frequency);
  rope.scale = 8.0;
  rope.llama31 = Rope::Llama31{1.0, 4.0, kLength};
  const auto f = RopeFrequencies(rope, 4);
  EXPECT_DOUBLE_EQ(f[0], 1.0);  // 1304 turns: untouched.
  return f[1] / frequency;
}

TEST(RopeFrequencies, Llama31BlendsBetweenItsFactors) {
  EXPECT_NEAR(SmoothedShare(0.5), 1.0 / 8, 1e-12);
  EXPECT_NEAR(SmoothedShare(1.0), 1.0 / 8, 1e-12);
  EXPECT_NEAR(SmoothedShare(2.0), 5.0 / 12, 1e-12);  // 1/3 of 1 and 2/3 of 1/8.
  EXPECT_NEAR(SmoothedShare(4.0), 1.0, 1e-12);
  EXPECT_NEAR(SmoothedShare(5.0), 1.0, 1e-12);
}

}  // namespace
}  // namespace kvilt::api
