// An arch before sm_89: this program is compiled with KVILT_EMULATE_NO_FP8.
#include <gtest/gtest.h>

#include "src/kernels/simt.cuh"

namespace kvilt::simt {
namespace {

TEST(NoFp8, IsKnownToKernels) {
  EXPECT_FALSE(kNativeFp8);
  EXPECT_EQ(F16FromE4M3(0x3838u), 0u);
}

}  // namespace
}  // namespace kvilt::simt
