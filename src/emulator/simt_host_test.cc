// Each function of the machine against a plain statement of what it does.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "src/emulator/emulator.h"
#include "src/emulator/fragments.h"
#include "src/kernels/simt.cuh"

namespace kvilt::emulator {
namespace {

using namespace simt;  // NOLINT: as a kernel.

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::size_t Lane() { return static_cast<std::size_t>(LaneIndex()); }

TEST(SimtHost, Shuffles) {
  Launch({.threads = 64, .seed = 3}, [] {
    const i32 lane = LaneIndex();
    const i32 base = 100 * WarpIndex();
    const auto value = static_cast<u32>(base + lane);
    for (i32 mask = 1; mask < 32; mask *= 2) {
      EXPECT_EQ(ShuffleXor(value, mask), static_cast<u32>(base + (lane ^ mask)));
    }
    EXPECT_EQ(Shuffle(value, 7), static_cast<u32>(base + 7));
    EXPECT_EQ(Shuffle(value, 31 - lane), static_cast<u32>(base + 31 - lane));
    EXPECT_EQ(ShuffleXor(static_cast<float>(lane) + 0.5f, 3), static_cast<float>(lane ^ 3) + 0.5f);
    EXPECT_EQ(Shuffle(static_cast<float>(lane) + 0.5f, 3), 3.5f);
    EXPECT_EQ(Ballot(lane % 3 == 0), 0x49249249u);
    EXPECT_TRUE(Any(lane == 17));
    EXPECT_FALSE(Any(lane > 31));
  });
}

TEST(SimtHost, Arithmetic) {
  EXPECT_EQ(Exp2(-kInfinity), 0.0f);
  EXPECT_EQ(Exp2(-126.0f), 0x1p-126f);
  EXPECT_EQ(Bits(Exp2(-126.5f)), 0u);
  EXPECT_EQ(Exp2(3.0f), 8.0f);
  EXPECT_EQ(Log2(0x1p-140f), -140.0f);
  EXPECT_EQ(Log2(0.0f), -kInfinity);
  EXPECT_EQ(Reciprocal(4.0f), 0.25f);
  EXPECT_EQ(Multiply(0x1p-100f, 0x1p-40f), 0x1p-140f);
  // 1 + 2^-12 squared has a term 2^-24 that only the fused form keeps.
  const float x = 1.0f + 0x1p-12f;
  EXPECT_EQ(Subtract(Multiply(x, x), 1.0f + 0x1p-11f), 0.0f);
  EXPECT_EQ(Fma(x, x, -(1.0f + 0x1p-11f)), 0x1p-24f);
  EXPECT_EQ(Add(1.0f, 0x1p-24f), 1.0f);
  EXPECT_EQ(Divide(1.0f, 3.0f), 1.0f / 3.0f);
  EXPECT_EQ(Ceil(-1.5f), -1.0f);
  EXPECT_EQ(MaxFloat(kNan, 1.0f), 1.0f);
  EXPECT_EQ(MaxFloat(-1.0f, kNan), -1.0f);
  EXPECT_EQ(MaxFloat(-2.0f, -1.0f), -1.0f);
  EXPECT_EQ(Bits(MaxFloat(-0.0f, 0.0f)), 0u);
  EXPECT_EQ(Bits(MaxFloat(-0.0f, -0.0f)), 0x80000000u);
}

TEST(SimtHost, PermuteTakesBytesOrSigns) {
  const u32 a = 0x83828180u;
  const u32 b = 0x07060504u;
  EXPECT_EQ(Permute(a, b, 0x3210u), a);
  EXPECT_EQ(Permute(a, b, 0x7654u), b);
  EXPECT_EQ(Permute(a, b, 0x5140u), 0x05810480u);
  EXPECT_EQ(Permute(a, b, 0xFC98u), 0x0000FFFFu);
}

TEST(SimtHost, Pairs) {
  EXPECT_EQ(PackF16(1.0f, -2.0f), 0xC0003C00u);
  EXPECT_EQ(PackF16(65519.0f, 65520.0f), 0x7C007BFFu);
  EXPECT_EQ(PackF16(1.0f + 0x1p-11f, 1.0f + 0x3p-11f), 0x3C023C00u);  // Ties to even.
  EXPECT_EQ(PackBF16(1.0f + 0x1p-8f, 1.0f + 0x3p-8f), 0x3F823F80u);
  EXPECT_EQ(LowF16(0xC0003C00u), 1.0f);
  EXPECT_EQ(HighF16(0xC0003C00u), -2.0f);
  // (1 + 2^-10)^2 = 1 + 2^-9 + 2^-20, and 256 * 256 is beyond the range.
  EXPECT_EQ(MultiplyF16(PackF16(1.0f + 0x1p-10f, 256.0f), PackF16(1.0f + 0x1p-10f, 256.0f)),
            PackF16(1.0f + 0x1p-9f, kInfinity));
  EXPECT_EQ(MultiplyF16(PackF16(0x1p-14f, -3.0f), PackF16(0x1p-10f, 0.5f)),
            PackF16(0x1p-24f, -1.5f));
}

TEST(SimtHost, Fp8IsExactInF16) {
  ASSERT_TRUE(kNativeFp8);
  for (u32 byte = 0; byte < 256; ++byte) {
    const u32 pair = F16FromE4M3(0xABCD0000u | byte << 8 | (byte ^ 0x80u));
    if ((byte & 0x7Fu) == 0x7Fu) {
      EXPECT_EQ(pair, 0x7FFF7FFFu);
    } else {
      EXPECT_EQ(HighF16(pair), DecodeE4M3(static_cast<u8>(byte)));
      EXPECT_EQ(LowF16(pair), DecodeE4M3(static_cast<u8>(byte ^ 0x80u)));
    }
  }
}

// Row i of d: i = g, g + 8 in turn; see simt_ptx.cuh.
template <class Pack, class Multiply>
void CompareWithTripleLoop(Pack pack, Multiply multiply) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int> small(-64, 64);  // Exact in bf16 and f16, sums in f32.
  float a[16][16];
  float b[16][8];
  float c[16][8];
  for (auto& row : a)
    for (float& x : row) x = static_cast<float>(small(random)) / 8;
  for (auto& row : b)
    for (float& x : row) x = static_cast<float>(small(random)) / 8;
  for (auto& row : c)
    for (float& x : row) x = static_cast<float>(small(random));
  float got[16][8] = {};
  Launch({}, [&] {
    const std::size_t g = Lane() / 4;
    const std::size_t t = Lane() % 4 * 2;
    const u32 fragment[4] = {pack(a[g][t], a[g][t + 1]), pack(a[g + 8][t], a[g + 8][t + 1]),
                             pack(a[g][t + 8], a[g][t + 9]),
                             pack(a[g + 8][t + 8], a[g + 8][t + 9])};
    float d[4] = {c[g][t], c[g][t + 1], c[g + 8][t], c[g + 8][t + 1]};
    multiply(d, fragment, pack(b[t][g], b[t + 1][g]), pack(b[t + 8][g], b[t + 9][g]));
    std::memcpy(&got[g][t], &d[0], 8);
    std::memcpy(&got[g + 8][t], &d[2], 8);
  });
  for (std::size_t i = 0; i < 16; ++i) {
    for (std::size_t j = 0; j < 8; ++j) {
      float sum = c[i][j];
      for (std::size_t k = 0; k < 16; ++k) sum += a[i][k] * b[k][j];
      EXPECT_EQ(got[i][j], sum) << i << " " << j;
    }
  }
}

TEST(SimtHost, MmaIsATripleLoop) {
  CompareWithTripleLoop(&PackF16, &MmaF16);
  CompareWithTripleLoop(&PackBF16, &MmaBF16);
}

TEST(SimtHost, MmaDecodesEachF16) {
  for (u32 first = 0; first < 0x10000u; first += 16) {
    // Row 0 of a is one value after another, b picks them out one by one with eye(8).
    u32 in[6][32] = {};
    float d[4][32] = {};
    for (u32 k = 0; k < 16; k += 2) {
      in[k / 8 * 2][k % 8 / 2] = (first + k + 1) << 16 | (first + k);
    }
    const bool upper = first / 16 % 2 == 1;
    for (u32 n = 0; n < 8; ++n) in[upper ? 5 : 4][n * 4 + n / 2] = n % 2 ? 0x3C000000u : 0x3C00u;
    MultiplyAddF16(d, in);
    const bool finite = (first & 0x7C00u) != 0x7C00u;  // Else 0 * inf is NaN.
    for (u32 n = 0; n < 8; ++n) {
      const float want = DecodeF16(static_cast<u16>(first + n + (upper ? 8 : 0)));
      const float have = d[n % 2][n / 2];
      if (finite) {
        ASSERT_EQ(have, want) << first + n;
      } else {
        ASSERT_TRUE(std::isnan(have));
      }
    }
  }
}

TEST(SimtHost, LoadMatrixLayouts) {
  Launch({.smem_bytes = 1024}, [] {
    // Element e of the memory is e. Row r of matrix i is the 16-byte piece (5 r + 8 i + 3) % 64.
    auto* memory = reinterpret_cast<u16*>(SharedMemory());
    for (i32 e = LaneIndex(); e < 512; e += 32) memory[e] = static_cast<u16>(e);
    WarpSync();
    const auto piece = [](i32 i, i32 r) { return (5 * r + 8 * i + 3) % 64; };
    const auto element = [&](i32 i, i32 row, i32 column) {
      return static_cast<u32>(piece(i, row) * 8 + column);
    };
    const u8* row = SharedMemory() + 16 * piece(LaneIndex() / 8, LaneIndex() % 8);
    const i32 g = LaneIndex() / 4;
    const i32 t = LaneIndex() % 4;
    u32 plain[4];
    u32 transposed[4];
    LoadMatrix4(plain, row);
    LoadMatrix4Transposed(transposed, row);
    for (i32 i = 0; i < 4; ++i) {
      EXPECT_EQ(plain[i], element(i, g, 2 * t + 1) << 16 | element(i, g, 2 * t));
      EXPECT_EQ(transposed[i], element(i, 2 * t + 1, g) << 16 | element(i, 2 * t, g));
      EXPECT_EQ(MoveMatrixTransposed(plain[i]), transposed[i]);
    }
    EXPECT_EQ(SharedAddress(row), static_cast<u32>(row - SharedMemory()));
  });
}

TEST(SimtHost, CopiesAreThereAfterTheirWait) {
  alignas(16) u32 source[64];
  for (u32 i = 0; i < 64; ++i) source[i] = 1000 + i;
  Launch({.threads = 32, .smem_bytes = 32 * 28}, [&] {
    auto* four = reinterpret_cast<u32*>(SharedMemory() + 16 * 32 + 8 * 32);
    auto* eight = reinterpret_cast<u32*>(SharedMemory() + 16 * 32);
    auto* sixteen = reinterpret_cast<u32*>(SharedMemory());
    const i32 lane = LaneIndex();
    const i32 at = lane % 4;
    sixteen[4 * lane] = 5;  // A copy may come any time from its issue on.
    CopyAsync<16>(sixteen + 4 * lane, source + 4 * at, true);
    CopyCommit();
    CopyAsync<8>(eight + 2 * lane, source + 2 * at, true);
    CopyAsync<4>(four + lane, nullptr, false);
    CopyCommit();
    EXPECT_EQ(sixteen[4 * lane], ~0u);
    EXPECT_EQ(eight[2 * lane], ~0u);
    CopyWait<2>();
    EXPECT_EQ(sixteen[4 * lane], ~0u);
    CopyWait<1>();
    for (i32 i = 0; i < 4; ++i)
      EXPECT_EQ(sixteen[4 * lane + i], static_cast<u32>(1000 + 4 * at + i));
    EXPECT_EQ(eight[2 * lane], ~0u);
    CopyAsync<4>(four + lane, source + at, lane % 2 == 0);
    CopyWait<0>();  // Does not cover what is not committed.
    EXPECT_EQ(eight[2 * lane + 1], static_cast<u32>(1001 + 2 * at));
    EXPECT_EQ(four[lane], 0u);
    CopyCommit();
    CopyWait<0>();
    EXPECT_EQ(four[lane], lane % 2 == 0 ? static_cast<u32>(1000 + at) : 0u);
  });
}

TEST(SimtHost, GlobalMemory) {
  u32 first[64] = {};
  u64 sum = 0;
  float value = 2.5f;
  Launch({.grid = 4, .threads = 64}, [&] {
    WaitForPrevious();
    StoreFirst(&first[ThreadIndex()], static_cast<u32>(BlockIndex() + 1));
    AddGlobal(&sum, u64{1} << 33);
    EXPECT_EQ(LoadL2(&value), 2.5f);
    EXPECT_NE(LoadL2(&first[ThreadIndex()]), 0u);
    LetNextStart();
  });
  EXPECT_EQ(sum, u64{256} << 33);
  for (const u32 x : first) EXPECT_EQ(x, first[0]);
}

}  // namespace
}  // namespace kvilt::emulator
