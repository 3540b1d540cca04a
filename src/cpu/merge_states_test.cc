#include "src/cpu/merge_states.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "src/contract/formats.h"

namespace kvilt::cpu {
namespace {

using contract::Format;
using contract::i64;
using contract::u16;
using contract::u8;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// One state with f32 outputs in owned memory.
struct Owned {
  std::vector<float> out;
  std::vector<float> lse;

  Owned(i64 pairs, i64 head_dim, float fill = kNan)
      : out(static_cast<std::size_t>(pairs * head_dim), fill),
        lse(static_cast<std::size_t>(pairs), fill) {}
  MergeState View(const MergeShape& shape) {
    MergeState state;
    state.out = reinterpret_cast<u8*>(out.data());
    state.row_stride = shape.heads * shape.head_dim * 4;
    state.head_stride = shape.head_dim * 4;
    state.lse = lse.data();
    state.lse_row_stride = shape.heads;
    state.lse_head_stride = 1;
    return state;
  }
};

std::vector<MergeState> Views(std::vector<Owned>& states, const MergeShape& shape) {
  std::vector<MergeState> views;
  for (Owned& state : states) views.push_back(state.View(shape));
  return views;
}

TEST(CpuMergeStates, P58_weights_follow_the_base) {
  WorkerPool pool(1);
  const MergeShape natural{1, 1, 1, false};
  std::vector<Owned> states(2, Owned(1, 1));
  // Z = [2, 8], out = [0, 1]: 8 / 10.
  for (int i = 0; i < 2; ++i) {
    states[static_cast<std::size_t>(i)].out[0] = static_cast<float>(i);
    states[static_cast<std::size_t>(i)].lse[0] = std::log(i == 0 ? 2.0f : 8.0f);
  }
  Owned result(1, 1);
  MergeStates(Views(states, natural), result.View(natural), natural, pool);
  EXPECT_NEAR(result.out[0], 0.8, 1e-6);
  EXPECT_NEAR(result.lse[0], std::log(10.0), 1e-6);

  MergeShape two = natural;
  two.base_two = true;
  MergeStates(Views(states, two), result.View(two), two, pool);
  EXPECT_NEAR(result.out[0], 0.7233, 1e-4) << "natural values read as base 2";
  states[0].lse[0] = 1;
  states[1].lse[0] = 3;
  MergeStates(Views(states, two), result.View(two), two, pool);
  EXPECT_NEAR(result.out[0], 0.8, 1e-6);
  EXPECT_NEAR(result.lse[0], std::log2(10.0), 1e-6);
  MergeStates(Views(states, natural), result.View(natural), natural, pool);
  EXPECT_NEAR(result.out[0], 0.8808, 1e-4) << "base 2 values read as natural";
}

TEST(CpuMergeStates, P53_empty_states_are_never_read) {
  WorkerPool pool(2);
  const MergeShape shape{3, 2, 40, false};
  for (std::size_t count : {2u, 3u, 8u}) {
    for (int pattern : {0, 1, 2}) {  // All empty; one empty; alternating.
      std::vector<Owned> states(count, Owned(6, 40));
      for (std::size_t i = 0; i < count; ++i) {
        const bool empty = pattern == 0 || (pattern == 1 && i == 1) || (pattern == 2 && i % 2 == 0);
        states[i].lse.assign(6, empty ? -kInf : 1.0f);
        states[i].out.assign(240, empty ? kNan : 2.5f);
      }
      Owned result(6, 40);
      MergeStates(Views(states, shape), result.View(shape), shape, pool);
      for (float x : result.out) ASSERT_FLOAT_EQ(x, pattern == 0 ? 0.0f : 2.5f);
      for (float x : result.lse) {
        if (pattern == 0) {
          ASSERT_EQ(x, -kInf);
        } else {
          const double present =
              pattern == 1 ? static_cast<double>(count) - 1 : static_cast<double>(count / 2);
          ASSERT_NEAR(x, 1.0 + std::log(present), 1e-6);
        }
      }
    }
  }
}

// Like terms round alike, so a running f32 sum of so many would be off by about 1e-3.
TEST(CpuMergeStates, P19_many_like_states_do_not_drift) {
  WorkerPool pool(1);
  const MergeShape shape{1, 1, 2, false};
  std::vector<Owned> states(100000, Owned(1, 2));
  for (Owned& state : states) {
    state.out = {1.0f, 0.7f};
    state.lse[0] = 0.3f;
  }
  Owned result(1, 2);
  MergeStates(Views(states, shape), result.View(shape), shape, pool);
  EXPECT_NEAR(result.out[0], 1.0, 1e-6);
  EXPECT_NEAR(result.out[1], 0.7, 1e-6);
  EXPECT_NEAR(result.lse[0], 0.3 + std::log(1e5), 2e-6);
}

TEST(CpuMergeStates, FarBelowZeroAndFarApart) {
  WorkerPool pool(1);
  const MergeShape shape{1, 1, 2, false};
  std::vector<Owned> states(3, Owned(1, 2));
  const float lse[] = {-46340.95f, -46340.95f, -1e30f};
  for (std::size_t i = 0; i < 3; ++i) {
    states[i].lse[0] = lse[i];
    states[i].out = {static_cast<float>(i), 1.0f};
  }
  Owned result(1, 2);
  MergeStates(Views(states, shape), result.View(shape), shape, pool);
  EXPECT_FLOAT_EQ(result.out[0], 0.5f);
  EXPECT_FLOAT_EQ(result.out[1], 1.0f);
  EXPECT_FLOAT_EQ(result.lse[0], -46340.95f + std::log(2.0f));
}

TEST(CpuMergeStates, ANanLseShowsInItsRowAlone) {
  WorkerPool pool(1);
  const MergeShape shape{2, 1, 1, false};
  std::vector<Owned> states(2, Owned(2, 1, 1.0f));
  states[0].lse[0] = kNan;
  Owned result(2, 1);
  MergeStates(Views(states, shape), result.View(shape), shape, pool);
  EXPECT_TRUE(std::isnan(result.out[0]) && std::isnan(result.lse[0]));
  EXPECT_EQ(result.out[1], 1.0f);
}

// Random states against double; head_dim beyond one piece; in place; threads.
TEST(CpuMergeStates, AgreesWithDoubleInPlaceAndOverThreads) {
  const MergeShape shape{37, 3, 600, true};
  const i64 pairs = shape.rows * shape.heads;
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  std::vector<Owned> states(5, Owned(pairs, shape.head_dim));
  for (Owned& state : states) {
    for (float& x : state.out) x = normal(random);
    for (float& x : state.lse) x = random() % 7 == 0 ? -kInf : 5 * normal(random);
  }
  WorkerPool one(1);
  WorkerPool four(4);
  Owned result(pairs, shape.head_dim);
  MergeStates(Views(states, shape), result.View(shape), shape, four);
  for (i64 pair = 0; pair < pairs; ++pair) {
    double sum = 0;
    for (Owned& s : states)
      sum += std::exp2(static_cast<double>(s.lse[static_cast<std::size_t>(pair)]));
    for (i64 d = 0; d < shape.head_dim; ++d) {
      double want = 0;
      for (Owned& s : states) {
        want += std::exp2(static_cast<double>(s.lse[static_cast<std::size_t>(pair)])) *
                s.out[static_cast<std::size_t>(pair * shape.head_dim + d)];
      }
      ASSERT_NEAR(result.out[static_cast<std::size_t>(pair * shape.head_dim + d)],
                  sum == 0 ? 0.0 : want / sum, 2e-6);
    }
  }
  for (std::size_t target : {0u, 2u, 4u}) {
    std::vector<Owned> copy = states;
    std::vector<MergeState> views = Views(copy, shape);
    MergeStates(views, views[target], shape, one);
    EXPECT_EQ(copy[target].out, result.out);
    EXPECT_EQ(copy[target].lse, result.lse);
  }
}

TEST(CpuMergeStates, SixteenBitStatesRoundOnce) {
  WorkerPool pool(1);
  const MergeShape shape{1, 1, 16, false};
  for (Format format : {Format::kBF16, Format::kF16}) {
    std::vector<std::vector<u16>> out(2, std::vector<u16>(16));
    std::vector<float> lse = {0.25f, -0.75f};
    std::vector<MergeState> states(2);
    std::vector<u16> merged(16);
    const auto encode = [&](float x) {
      return format == Format::kBF16 ? contract::EncodeBF16(x) : contract::EncodeF16(x);
    };
    const auto decode = [&](u16 x) {
      return format == Format::kBF16 ? contract::DecodeBF16(x) : contract::DecodeF16(x);
    };
    for (std::size_t i = 0; i < 2; ++i) {
      for (std::size_t d = 0; d < 16; ++d) out[i][d] = encode(0.3f * static_cast<float>(d + 3 * i));
      states[i] = {reinterpret_cast<u8*>(out[i].data()), format, 32, 32, &lse[i], 1, 1};
    }
    float merged_lse = 0;
    const MergeState result{
        reinterpret_cast<u8*>(merged.data()), format, 32, 32, &merged_lse, 1, 1};
    MergeStates(states, result, shape, pool);
    const double w0 = std::exp(0.25);
    const double w1 = std::exp(-0.75);
    for (std::size_t d = 0; d < 16; ++d) {
      const double want = (w0 * decode(out[0][d]) + w1 * decode(out[1][d])) / (w0 + w1);
      EXPECT_NEAR(decode(merged[d]), want,
                  std::abs(want) * (format == Format::kBF16 ? 0x1.01p-8 : 0x1.01p-11))
          << "one rounding: half a unit in the last place";
    }
  }
}

}  // namespace
}  // namespace kvilt::cpu
