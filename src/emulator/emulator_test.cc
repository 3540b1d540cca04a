#include "src/emulator/emulator.h"

#include <gtest/gtest.h>

#include <vector>

#include "src/kernels/simt.cuh"

namespace kvilt::emulator {
namespace {

using namespace simt;  // NOLINT: as a kernel.

TEST(Launch, RunsEachThreadOfEachBlockOnce) {
  std::vector<int> seen(3 * 64, 0);
  Launch({.grid = 3, .threads = 64, .smem_bytes = 100}, [&] {
    EXPECT_EQ(BlockThreads(), 64);
    EXPECT_EQ(GridBlocks(), 3);
    BlockSync();
    ++seen[static_cast<std::size_t>(BlockIndex() * 64 + ThreadIndex())];
  });
  EXPECT_EQ(seen, std::vector<int>(3 * 64, 1));
}

}  // namespace
}  // namespace kvilt::emulator
