// A tiled matrix product as kernels do it. Right as written; wrong without any one of its waits.
//
//   shared: stage 0: A 32x16 | B 16x16   stage 1: A 32x16 | B 16x16      f16
//   two warps, each 16 rows of C and all 16 columns; each copies rows that the other one reads
#include <gtest/gtest.h>

#include <cstddef>
#include <random>
#include <vector>

#include "src/emulator/emulator.h"
#include "src/kernels/simt.cuh"

namespace kvilt::emulator {
namespace {

using namespace simt;  // NOLINT: as a kernel.

constexpr i32 kRows = 32;
constexpr i32 kColumns = 16;
constexpr i32 kDepth = 96;
constexpr i32 kStep = 16;
constexpr i32 kStageBytes = (kRows + kStep) * kStep * 2;

enum class LeftOut { kNothing, kCopyWait, kBarrierAfterWait, kBarrierBeforeRefill };

struct Problem {
  alignas(16) u16 a[kRows][kDepth];
  alignas(16) u16 b[kDepth][kColumns];
  float c[kRows][kColumns];
  float expected[kRows][kColumns];
};

void IssueStage(const Problem& p, i32 step) {
  u8* stage = SharedMemory() + step % 2 * kStageBytes;
  const i32 piece = ThreadIndex() ^ 32;  // Two of 8 elements in a row.
  CopyAsync<16>(stage + 16 * piece, &p.a[piece / 2][step * kStep + piece % 2 * 8], true);
  if (WarpIndex() == 1) {
    const i32 lane = LaneIndex();
    CopyAsync<16>(stage + kRows * kStep * 2 + 16 * lane,
                  &p.b[step * kStep + lane / 2][lane % 2 * 8], true);
  }
  CopyCommit();
}

void MultiplyStage(float (&d)[2][4], i32 step) {
  const u8* stage = SharedMemory() + step % 2 * kStageBytes;
  const u8* b_rows = stage + kRows * kStep * 2;
  const i32 row = LaneIndex() % 16;
  const i32 half = LaneIndex() / 16;
  u32 a[4];
  u32 b[4];
  LoadMatrix4(a, stage + (WarpIndex() * 16 + row) * 32 + half * 16);
  LoadMatrix4Transposed(b, b_rows + row * 32 + half * 16);
  MmaF16(d[0], a, b[0], b[1]);
  MmaF16(d[1], a, b[2], b[3]);
}

void Matmul(Problem& p, LeftOut left_out) {
  float d[2][4] = {};
  IssueStage(p, 0);
  for (i32 step = 0; step < kDepth / kStep; ++step) {
    if (step + 1 < kDepth / kStep) {
      IssueStage(p, step + 1);
    } else {
      CopyCommit();
    }
    if (left_out != LeftOut::kCopyWait) CopyWait<1>();
    if (left_out != LeftOut::kBarrierAfterWait) BlockSync();
    MultiplyStage(d, step);
    if (left_out != LeftOut::kBarrierBeforeRefill) BlockSync();
  }
  CopyWait<0>();
  for (i32 n = 0; n < 2; ++n) {
    for (i32 i = 0; i < 4; ++i) {
      const i32 row = WarpIndex() * 16 + LaneIndex() / 4 + i / 2 * 8;
      p.c[row][n * 8 + LaneIndex() % 4 * 2 + i % 2] = d[n][i];
    }
  }
}

Problem MakeProblem() {
  Problem p = {};
  std::mt19937 random(11);
  std::uniform_int_distribution<int> small(-4, 4);
  float a[kRows][kDepth];
  float b[kDepth][kColumns];
  for (i32 k = 0; k < kDepth; ++k) {
    for (i32 i = 0; i < kRows; ++i) {
      a[i][k] = static_cast<float>(small(random));
      p.a[i][k] = EncodeF16(a[i][k]);
    }
    for (i32 j = 0; j < kColumns; ++j) {
      b[k][j] = static_cast<float>(small(random));
      p.b[k][j] = EncodeF16(b[k][j]);
    }
  }
  for (i32 i = 0; i < kRows; ++i) {
    for (i32 j = 0; j < kColumns; ++j) {
      for (i32 k = 0; k < kDepth; ++k) p.expected[i][j] += a[i][k] * b[k][j];
    }
  }
  return p;
}

// Of `seeds` runs, those with a wrong element.
int CountWrong(LeftOut left_out, int seeds) {
  Problem p = MakeProblem();
  int wrong = 0;
  for (int seed = 0; seed < seeds; ++seed) {
    Launch({.threads = 64, .smem_bytes = 2 * kStageBytes, .seed = static_cast<u64>(seed)},
           [&] { Matmul(p, left_out); });
    bool right = true;
    for (i32 i = 0; i < kRows; ++i) {
      for (i32 j = 0; j < kColumns; ++j) right = right && p.c[i][j] == p.expected[i][j];
    }
    wrong += right ? 0 : 1;
  }
  return wrong;
}

TEST(Matmul, IsRightUnderEachSeed) { EXPECT_EQ(CountWrong(LeftOut::kNothing, 200), 0); }

TEST(Matmul, LacksItsCopyWait) { EXPECT_EQ(CountWrong(LeftOut::kCopyWait, 50), 50); }

TEST(Matmul, LacksItsBarrierAfterTheWait) {
  EXPECT_GE(CountWrong(LeftOut::kBarrierAfterWait, 50), 25);
}

TEST(Matmul, LacksItsBarrierBeforeTheRefill) {
  EXPECT_GE(CountWrong(LeftOut::kBarrierBeforeRefill, 50), 25);
}

}  // namespace
}  // namespace kvilt::emulator
