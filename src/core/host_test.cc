#include "src/core/host.h"

#include <gtest/gtest.h>

#include "src/core/simd_target.h"

namespace kvilt::core {
namespace {

TEST(Host, SaysSomethingPlausible) {
  EXPECT_GE(HardwareThreads(), 1);
  EXPECT_GE(L2Bytes(), 0);
  EXPECT_LE(L2Bytes(), std::int64_t{1} << 40);
  EXPECT_GE(L3Bytes(), 0);
  EXPECT_LE(L3Bytes(), std::int64_t{1} << 40);
  EXPECT_GE(AvailableMemoryBytes(), 0);
}

TEST(SimdTarget, NamesAreInverses) {
  for (const SimdTarget target : kSimdTargets) {
    EXPECT_EQ(ParseSimdTarget(Name(target)), target);
  }
  EXPECT_FALSE(ParseSimdTarget("AVX2").has_value());
  EXPECT_FALSE(ParseSimdTarget("").has_value());
}

}  // namespace
}  // namespace kvilt::core
