// Launches, barriers, and the errors that they find.
#include "src/emulator/emulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <thread>
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
    EXPECT_EQ(LaneIndex() + 32 * WarpIndex(), ThreadIndex());
    BlockSync();
    seen[static_cast<std::size_t>(BlockIndex()) * 64 + static_cast<std::size_t>(ThreadIndex())] +=
        1;
  });
  EXPECT_EQ(seen, std::vector<int>(3 * 64, 1));
}

TEST(Launch, SharedMemoryIsAlignedAndPoisonedInEachBlock) {
  for (const std::int64_t bytes : {0, 1, 1000, 200'000}) {
    Launch({.grid = 2, .smem_bytes = bytes}, [&] {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(SharedMemory()) % 1024, 0u);
      u8* end = SharedMemory() + bytes;
      if (LaneIndex() == 0) {
        EXPECT_TRUE(std::all_of(SharedMemory(), end, [](u8 byte) { return byte == 0xFF; }));
      }
      WarpSync();
      if (LaneIndex() == 0) std::fill(SharedMemory(), end, u8{0});
    });
  }
}

TEST(Launch, OrdersAreDrawnFromTheSeed) {
  std::set<std::vector<int>> blocks;
  std::set<std::vector<int>> threads;
  for (u64 seed = 0; seed < 20; ++seed) {
    std::vector<int> block_order;
    std::vector<int> thread_order;
    for (int repeat = 0; repeat < 2; ++repeat) {
      std::vector<int> order;
      Launch({.grid = 8, .threads = 128, .seed = seed}, [&] {
        if (ThreadIndex() == 0) block_order.push_back(BlockIndex());
        if (BlockIndex() == 0) order.push_back(ThreadIndex());
        WarpSync();
        if (BlockIndex() == 0) order.push_back(ThreadIndex());
      });
      EXPECT_TRUE(repeat == 0 || order == thread_order);
      thread_order = order;
    }
    blocks.insert(block_order);
    threads.insert(thread_order);
  }
  EXPECT_GT(blocks.size(), 15u);
  EXPECT_GT(threads.size(), 15u);
}

TEST(Launch, FromSeveralOsThreads) {
  u64 sum = 0;
  std::vector<std::thread> users;
  for (u64 seed = 0; seed < 3; ++seed) {
    users.emplace_back([&sum, seed] {
      Launch({.grid = 20, .threads = 256, .smem_bytes = 1024, .seed = seed}, [&] {
        auto* numbers = reinterpret_cast<i32*>(SharedMemory());
        numbers[ThreadIndex()] = ThreadIndex();
        BlockSync();
        AddGlobal(&sum, static_cast<u64>(numbers[255 - ThreadIndex()]));
      });
    });
  }
  for (std::thread& user : users) user.join();
  EXPECT_EQ(sum, 3u * 20 * (255 * 256 / 2));
}

TEST(Barriers, OrderWhatIsWrittenBeforeAndReadAfter) {
  for (u64 seed = 0; seed < 50; ++seed) {
    Launch({.threads = 256, .smem_bytes = 256 * 4, .seed = seed}, [] {
      auto* numbers = reinterpret_cast<i32*>(SharedMemory());
      const i32 pair = WarpIndex() / 2;
      for (i32 turn = 0; turn < 5; ++turn) {
        numbers[ThreadIndex()] = ThreadIndex() + turn;
        NamedSync(1 + pair, 64);  // Pairs of warps.
        EXPECT_EQ(numbers[ThreadIndex() ^ 32], (ThreadIndex() ^ 32) + turn);
        BlockSync();
        EXPECT_EQ(numbers[255 - ThreadIndex()], 255 - ThreadIndex() + turn);
        BlockSync();
      }
    });
  }
}

TEST(Barriers, LeftOutIsSeen) {
  int wrong = 0;
  for (u64 seed = 0; seed < 50; ++seed) {
    bool right = true;
    Launch({.threads = 64, .smem_bytes = 64 * 4, .seed = seed}, [&] {
      auto* numbers = reinterpret_cast<i32*>(SharedMemory());
      numbers[ThreadIndex()] = ThreadIndex();
      WarpSync();
      right = right && numbers[ThreadIndex() ^ 32] == (ThreadIndex() ^ 32);
    });
    wrong += right ? 0 : 1;
  }
  EXPECT_GE(wrong, 25);
}

TEST(WarpSync, LeftOutIsSeen) {
  Launch({.smem_bytes = 32 * 4}, [&] {
    auto* numbers = reinterpret_cast<i32*>(SharedMemory());
    numbers[LaneIndex()] = LaneIndex();
    const bool right = numbers[LaneIndex() ^ 1] == (LaneIndex() ^ 1);
    EXPECT_EQ(Ballot(right) == ~0u, false);
  });
}

// ---------------------------------------------------------------- errors

class EmulatorDeathTest : public testing::Test {
 protected:
  void SetUp() override { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

template <class Body>
void LaunchFour(Body body) {
  Launch({.threads = 128, .smem_bytes = 1000}, body);
}

TEST_F(EmulatorDeathTest, LanesOfAWarpDiverge) {
  EXPECT_DEATH(LaunchFour([] {
                 if (ThreadIndex() < 100) {
                   Shuffle(1u, 2);
                 } else {
                   Ballot(true);
                 }
               }),
               "block 0, warp 3: lanes at (Shuffle and at Ballot|Ballot and at Shuffle)");
  EXPECT_DEATH(LaunchFour([] { NamedSync(1 + LaneIndex() % 2, 64); }),
               "lanes at NamedSync\\([12], 64\\) and at NamedSync\\([12], 64\\)");
}

TEST_F(EmulatorDeathTest, LanesOfAWarpAreMissing) {
  EXPECT_DEATH(LaunchFour([] {
                 if (LaneIndex() < 31) Shuffle(1u, 2);
               }),
               "warp [0-3]: lanes (at Shuffle and ended|ended and at Shuffle)");
}

TEST_F(EmulatorDeathTest, ABarrierWaitsForEver) {
  EXPECT_DEATH(LaunchFour([] {
                 if (WarpIndex() == 1) NamedSync(2, 64);
               }),
               "block 0: barrier 2 waits for 64 threads, 32 arrived, the rest has ended");
  EXPECT_DEATH(LaunchFour([] {
                 if (WarpIndex() == 0) {
                   NamedSync(1, 64);
                 } else {
                   BlockSync();
                 }
               }),
               "barrier 0 waits for 128 threads, 96 arrived, barrier 1 waits for 64 threads, 32 "
               "arrived\n");
  EXPECT_DEATH(LaunchFour([] { NamedSync(3, WarpIndex() == 1 ? 64 : 96); }),
               "barrier 3 is asked for (64 and for 96|96 and for 64) threads");
  EXPECT_DEATH(LaunchFour([] { NamedSync(16, 64); }), "NamedSync\\(16, 64\\)");
  EXPECT_DEATH(LaunchFour([] { NamedSync(1, 160); }), "NamedSync\\(1, 160\\)");
}

TEST_F(EmulatorDeathTest, Copies) {
  alignas(16) static const u8 source[64] = {};
  EXPECT_DEATH(LaunchFour([] {
                 if (ThreadIndex() == 5) CopyAsync<4>(SharedMemory(), source, true);
               }),
               "thread 5: ended with 1 copies that no CopyWait has covered");
  EXPECT_DEATH(LaunchFour([] { CopyAsync<8>(SharedMemory() + 12, source, true); }),
               "CopyAsync at offset 12, which 8 does not divide");
  EXPECT_DEATH(LaunchFour([] { CopyAsync<8>(SharedMemory(), source + 4, true); }),
               "CopyAsync of 8 bytes from 0x");
  EXPECT_DEATH(LaunchFour([] { CopyAsync<8>(SharedMemory(), nullptr, true); }),
               "CopyAsync of 8 bytes from \\(nil\\)");
  EXPECT_DEATH(LaunchFour([] { CopyAsync<16>(SharedMemory() + 992, source, true); }),
               "CopyAsync of 16 bytes at offset 992 of 1000 bytes");
}

TEST_F(EmulatorDeathTest, MatricesOutsideSharedMemory) {
  EXPECT_DEATH(LaunchFour([] {
                 u32 r[4];
                 LoadMatrix4(r, SharedMemory() + 16 * 31 + 16 * LaneIndex());
               }),
               "LoadMatrix4 of 16 bytes at offset 992 of 1000 bytes");
  EXPECT_DEATH(LaunchFour([] {
                 u32 r[4];
                 LoadMatrix4Transposed(r, SharedMemory() + 8 * LaneIndex() + 8);
               }),
               "LoadMatrix4Transposed at offset [0-9]+, which 16 does not divide");
}

TEST_F(EmulatorDeathTest, AStoreBehindSharedMemory) {
  EXPECT_DEATH(LaunchFour([] {
                 volatile u8* end = SharedMemory() + 1000;
                 if (ThreadIndex() == 77) *end = 1;
               }),
               "a store 0 bytes behind the 1000 bytes of shared memory|heap-buffer-overflow");
}

TEST_F(EmulatorDeathTest, Shapes) {
  EXPECT_DEATH(Launch({.threads = 48}, [] {}), "a block of 48 threads");
  EXPECT_DEATH(Launch({.threads = 1056}, [] {}), "a block of 1056 threads");
  EXPECT_DEATH(Launch({.grid = 0}, [] {}), "a grid of 0 blocks");
  EXPECT_DEATH(Launch({}, [] { Launch({}, [] {}); }), "a launch from within a launch");
}

}  // namespace
}  // namespace kvilt::emulator
