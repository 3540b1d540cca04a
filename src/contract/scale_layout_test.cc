#include "src/contract/scale_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "src/contract/formats.h"

namespace kvilt::contract {
namespace {

TEST(ScaleLayout, Interleaved4IsABijectionOnEachFourRows) {
  for (i64 blocks : {4, 8, 12, 16, 32}) {
    std::set<std::pair<i64, i64>> seen;
    for (i64 t = 0; t < 16; ++t) {
      for (i64 s = 0; s < blocks; ++s) {
        const i64 row = ScaleRow(true, t, s, blocks);
        const i64 column = ScaleColumn(true, t, s, blocks);
        EXPECT_EQ(row / 4, t / 4);
        EXPECT_TRUE(column >= 0 && column < blocks);
        seen.emplace(row, column);
      }
    }
    EXPECT_EQ(static_cast<i64>(seen.size()), 16 * blocks);
  }
}

TEST(ScaleLayout, Interleaved4ByExample) {
  // S = 8: token 5, block 3 -> row 4 + 3 / 2, column (3 % 2) * 4 + 1.
  EXPECT_EQ(ScaleRow(true, 5, 3, 8), 5);
  EXPECT_EQ(ScaleColumn(true, 5, 3, 8), 5);
  // S = 4 is the transposed 4 x 4.
  for (i64 t = 0; t < 4; ++t) {
    for (i64 s = 0; s < 4; ++s) {
      EXPECT_EQ(ScaleRow(true, t, s, 4), s);
      EXPECT_EQ(ScaleColumn(true, t, s, 4), t);
    }
  }
  EXPECT_EQ(ScaleRow(false, 7, 3, 8), 7);
  EXPECT_EQ(ScaleColumn(false, 7, 3, 8), 3);
}

// Writes V [tokens, 128] with one layout and reads the scales with another.
double CrossRead(const std::vector<float>& v, bool write_interleaved, bool read_interleaved) {
  constexpr i64 kBlocks = 8;
  const i64 tokens = static_cast<i64>(v.size()) / 128;
  float amax = 0;
  for (float x : v) amax = std::max(amax, std::abs(x));
  const float global = amax / 2688.0f;
  std::vector<u8> scales(static_cast<std::size_t>(tokens * kBlocks));
  std::vector<Nvfp4Block> blocks;
  for (i64 t = 0; t < tokens; ++t) {
    for (i64 s = 0; s < kBlocks; ++s) {
      blocks.push_back(
          EncodeNvfp4Block(&v[static_cast<std::size_t>((t * kBlocks + s) * 16)], global, false));
      scales[static_cast<std::size_t>(ScaleRow(write_interleaved, t, s, kBlocks) * kBlocks +
                                      ScaleColumn(write_interleaved, t, s, kBlocks))] =
          blocks.back().scale;
    }
  }
  double error = 0;
  double norm = 0;
  for (i64 t = 0; t < tokens; ++t) {
    for (i64 s = 0; s < kBlocks; ++s) {
      const std::size_t block = static_cast<std::size_t>(t * kBlocks + s);
      const u8 scale =
          scales[static_cast<std::size_t>(ScaleRow(read_interleaved, t, s, kBlocks) * kBlocks +
                                          ScaleColumn(read_interleaved, t, s, kBlocks))];
      for (std::size_t i = 0; i < 16; ++i) {
        const u32 code = blocks[block].codes[i / 2] >> (i % 2 * 4) & 15u;
        const double want = v[block * 16 + i];
        error += std::pow(DequantizedNvfp4(code, scale, global) - want, 2);
        norm += want * want;
      }
    }
  }
  return std::sqrt(error / norm);
}

TEST(ScaleLayout, P05_reading_swizzled_scales_as_linear_is_seen) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> iid(4096 * 128);
  std::vector<float> log_normal(iid.size());
  float magnitude = 1;
  for (std::size_t i = 0; i < iid.size(); ++i) {
    if (i % 128 == 0) magnitude = std::exp(normal(random));
    iid[i] = normal(random);
    log_normal[i] = iid[i] * magnitude;
  }
  for (bool layout : {false, true}) {
    EXPECT_NEAR(CrossRead(iid, layout, layout), 0.095, 2e-3);
    EXPECT_NEAR(CrossRead(log_normal, layout, layout), 0.095, 2e-3);
    EXPECT_NEAR(CrossRead(iid, layout, !layout), 0.31, 0.03) << "iid data hide the fault";
    EXPECT_GT(CrossRead(log_normal, layout, !layout), 0.8) << "log-normal magnitudes show it";
  }
}

TEST(ScaleLayout, P06_swizzle_does_not_commute_with_slicing_the_head_dim) {
  // Full S = 32, the slice of blocks [16, 32): the same scales lie elsewhere for S = 16.
  bool differs = false;
  for (i64 t = 0; t < 4 && !differs; ++t) {
    for (i64 s = 16; s < 32; ++s) {
      differs |= ScaleRow(true, t, s, 32) != ScaleRow(true, t, s - 16, 16) ||
                 ScaleColumn(true, t, s, 32) - 16 != ScaleColumn(true, t, s - 16, 16);
    }
  }
  EXPECT_TRUE(differs);
  for (i64 s = 16; s < 32; ++s) EXPECT_EQ(ScaleColumn(false, 1, s, 32) - 16, s - 16);
}

}  // namespace
}  // namespace kvilt::contract
