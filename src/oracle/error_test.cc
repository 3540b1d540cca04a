// What counts as an error of a path, and how large: closed forms again.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "src/oracle/oracle.h"
#include "src/oracle/tiny_request.h"

namespace kvilt::oracle {
namespace {

TEST(OracleError, MeasuresAgainstTheMagnitude) {
  // Values +1 and -1 cancel: the reference is 0, the magnitude 1.
  Tiny tiny({{0}}, {{0}, {0}}, {{1}, {-1}});
  tiny.out[0] = 1e-3f;
  tiny.lse[0] = std::log(2.0f);
  Error error = ErrorAgainst(tiny.request);
  EXPECT_NEAR(error.rel_l2, 1e-3, 1e-9);
  EXPECT_NEAR(error.worst_row_rel_l2, 1e-3, 1e-9);
  EXPECT_LT(error.lse_err, 1e-7);
  EXPECT_NEAR(error.largest_lse, std::log(2.0), 1e-12);
  tiny.lse[0] += 2e-3f;
  error = ErrorAgainst(tiny.request);
  EXPECT_NEAR(error.lse_err, 2e-3, 1e-6);
  EXPECT_GT(error.lse_excess, 1.9);
}

// 1 + 2^-8 lies halfway between two numbers of bf16: rounding alone is 2^-8 off.
TEST(OracleError, RoundingOfTheOutputIsNotTheKernels) {
  Tiny tiny({{0}}, {{0}}, {{1.00390625f}});
  tiny.lse[0] = 0;
  std::uint16_t rounded = 0x3F80;  // 1
  tiny.request.out = TensorView::Dense(&rounded, DType::kBF16, {1, 1, 1});
  Error error = ErrorAgainst(tiny.request);
  EXPECT_NEAR(error.rel_l2, 0x1p-8, 1e-4);
  EXPECT_EQ(error.kernel_rel_l2, 0);
  rounded = 0x3F7F;  // One step too far.
  error = ErrorAgainst(tiny.request);
  EXPECT_NEAR(error.kernel_rel_l2, 0x1p-8, 1e-4);
}

TEST(OracleError, UnwrittenAndInfiniteElementsFail) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  Tiny tiny({{0}}, {{0}}, {{1, 2}});
  tiny.out = {1, nan};
  tiny.lse[0] = 0;
  Error error = ErrorAgainst(tiny.request);
  EXPECT_EQ(error.nan_elements, 1);
  EXPECT_EQ(error.rel_l2, infinity);
  tiny.out = {1, 2};
  EXPECT_EQ(ErrorAgainst(tiny.request).rel_l2, 0);
  tiny.lse[0] = -infinity;
  EXPECT_EQ(ErrorAgainst(tiny.request).lse_err, infinity);
  tiny.lse[0] = nan;
  EXPECT_EQ(ErrorAgainst(tiny.request).nan_elements, 1);
}

TEST(OracleError, AnEmptyRowMustBeZero) {
  Tiny tiny({{0}, {0}}, {{0}}, {{1}});
  tiny.request.mask = MaskMode::kCausal;
  tiny.out = {0, 1};
  tiny.lse = {-std::numeric_limits<float>::infinity(), 0};
  EXPECT_EQ(ErrorAgainst(tiny.request).rel_l2, 0);
  tiny.out[0] = 1e-38f;
  EXPECT_EQ(ErrorAgainst(tiny.request).rel_l2, 0) << "below the smallest normal number";
  tiny.out[0] = 1e-30f;
  EXPECT_EQ(ErrorAgainst(tiny.request).rel_l2, std::numeric_limits<double>::infinity());
}

// Scores have the deviation that the problem asks for: ln E[e^x] = sigma^2 / 2 for normal x.
TEST(ProblemScores, HaveTheirSigma) {
  for (const char* text :
       {"kv_dtype=bf16", "kv_dtype=nvfp4 global=0.01", "kv_dtype=e4m3 q_dtype=e4m3 sm_scale=0.3",
        "kv_dtype=nvfp4 q_dtype=nvfp4", "kv_dtype=f16 rope=half"}) {
    const auto implied = [&](const std::string& words) {
      const auto data =
          Build("decode kv=1000 heads=8/2 d=64 mask=none out=f32 " + words + " " + text);
      double sum = 0;
      for (double lse : Attention(data.request()).lse) sum += lse - std::log(1000);
      return std::sqrt(std::max(0.0, 2 * sum / 8));
    };
    EXPECT_NEAR(implied("sigma=0.3 data=iid"), 0.3, 0.06) << text;
    EXPECT_NEAR(implied("sigma=0.9 data=iid"), 0.9, 0.15) << text;
    // Magnitudes that vary make the tails heavier.
    EXPECT_NEAR(implied("sigma=0.3"), 0.36, 0.12) << text;
  }
}

}  // namespace
}  // namespace kvilt::oracle
