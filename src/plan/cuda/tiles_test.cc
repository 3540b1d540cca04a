// Tiles: what they need in shared memory and registers, which are candidates, which is taken.
#include "src/plan/cuda/tiles.h"

#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "src/plan/cuda/cost.h"
#include "src/plan/cuda/tile_candidates.h"
#include "src/plan/device_table.h"

namespace kvilt::plan::cuda {
namespace {

using contract::Format;
using contract::KernelFamily;
using contract::SmemPart;
using contract::TileShape;

constexpr int kFormats[] = {static_cast<int>(Format::kBF16), static_cast<int>(Format::kF16),
                            static_cast<int>(Format::kE4M3), static_cast<int>(Format::kE5M2),
                            static_cast<int>(Format::kNVFP4)};
constexpr int kNvfp4 = static_cast<int>(Format::kNVFP4);
constexpr int kBf16 = static_cast<int>(Format::kBF16);
constexpr int kE4M3 = static_cast<int>(Format::kE4M3);

TileQuery Query(int rows, int head_dim_qk, int head_dim_vo, int k, int v) {
  TileQuery query;
  query.rows = rows;
  query.group = 4;
  query.kv_heads = 8;
  query.head_dim_qk = head_dim_qk;
  query.head_dim_vo = head_dim_vo;
  query.k_format = k;
  query.v_format = v;
  query.blocks = 64;
  query.keys = std::int64_t{64} * 8192;
  return query;
}

// The same for the model: with the families whose kernels are still to come.
TileQuery ModelQuery(int rows, int head_dim_qk, int head_dim_vo, int k, int v) {
  TileQuery query = Query(rows, head_dim_qk, head_dim_vo, k, v);
  query.unbuilt = true;
  return query;
}

// 16 query rows of 2 bytes against one stage of 64 keys.
TileShape SingleStage(int head_dim_qk, int head_dim_vo, int format) {
  TileShape tile;
  tile.family = static_cast<int>(KernelFamily::kPrefill);
  tile.k_format = tile.v_format = format;
  tile.q_rows = 16;
  tile.kv_rows = 64;
  tile.head_dim_qk = head_dim_qk;
  tile.head_dim_vo = head_dim_vo;
  tile.stages = 1;
  tile.q_in_smem = 1;
  return tile;
}

int QkvBytes(const TileShape& tile) {
  int bytes = 0;
  for (const SmemPart part : {SmemPart::kQ, SmemPart::kK, SmemPart::kV}) {
    bytes += contract::SmemPartBytes(tile, part);
  }
  return bytes;
}

TEST(Tiles, P74_KnownBytesOfQKAndV) {
  for (const auto& [qk, vo, format] : {std::tuple{448, 256, kBf16}, std::tuple{448, 256, kE4M3},
                                       std::tuple{432, 256, kBf16}, std::tuple{512, 256, kBf16}}) {
    std::cout << qk << "/" << vo << " " << FormatName(format) << ": "
              << QkvBytes(SingleStage(qk, vo, format)) << " bytes\n";
  }
  EXPECT_EQ(QkvBytes(SingleStage(448, 256, kBf16)), 104448);
  EXPECT_EQ(QkvBytes(SingleStage(448, 256, kE4M3)), 59392);
  EXPECT_EQ(QkvBytes(SingleStage(432, 256, kBf16)), 101888);
  EXPECT_EQ(QkvBytes(SingleStage(512, 256, kBf16)), 114688);
  EXPECT_EQ(QkvBytes(SingleStage(512, 256, kE4M3)), 65536);
  // Scales count: a byte for 16 elements, so NVFP4 takes 0.5625 byte per element.
  const TileShape nvfp4 = SingleStage(512, 256, kNvfp4);
  const int scales = contract::SmemPartBytes(nvfp4, SmemPart::kKScales) +
                     contract::SmemPartBytes(nvfp4, SmemPart::kVScales);
  EXPECT_EQ(scales, 3072);
  EXPECT_EQ(QkvBytes(nvfp4) - contract::SmemPartBytes(nvfp4, SmemPart::kQ) + scales,
            64 * 768 * 9 / 16);
}

TEST(Tiles, EveryByteHasAName) {
  for (const int arch : CudaArchs()) {
    ForEachTile(Query(64, 80, 48, kNvfp4, kE4M3), CudaSpec(arch), [](const TileShape& tile) {
      int sum = contract::SmemPaddingBytes(tile);
      int end = 0;
      for (int p = 0; p < static_cast<int>(SmemPart::kPadding); ++p) {
        const auto part = static_cast<SmemPart>(p);
        const int bytes = contract::SmemPartBytes(tile, part);
        sum += bytes;
        if (bytes == 0) continue;
        EXPECT_EQ(contract::SmemOffset(tile, part) % contract::SmemAlign(part), 0);
        EXPECT_GE(contract::SmemOffset(tile, part), end);
        end = contract::SmemOffset(tile, part) + bytes;
      }
      EXPECT_EQ(sum, contract::SmemBytes(tile));
    });
  }
}

// The pool of the prototype: 640 threads at 96 registers give 16 consumer warps 112 and a warpgroup
// of producers 32, not 120 and 32 (GPU-NOTES section 4).
TEST(Tiles, RegistersAreOnePool) {
  bool seen = false;
  ForEachTile(Query(8, 128, 128, kNvfp4, kNvfp4), CudaSpec(90), [&](const TileShape& tile) {
    if (tile.producer_warps == 0 || tile.consumer_registers == 0) return;
    const int pool = tile.launch_registers * contract::Threads(tile);
    EXPECT_LE(pool, 65536);
    EXPECT_LE(32 * (tile.consumer_registers * contract::ConsumerWarps(tile) +
                    tile.producer_registers * tile.producer_warps),
              pool)
        << TileName(tile);
    if (contract::ConsumerWarps(tile) == 16 && tile.producer_warps == 4) {
      seen = true;
      EXPECT_EQ(tile.launch_registers, 96);
      EXPECT_EQ(tile.consumer_registers, 112);
      EXPECT_EQ(tile.producer_registers, 32);
    }
  });
  EXPECT_TRUE(seen);
}

void ExpectFits(const TileQuery& query, const DeviceSpec& spec, const TileShape& tile) {
  EXPECT_EQ(CheckTile(query, tile, spec).reason, TileReason::kFeasible);
  EXPECT_LE(contract::SmemBytes(tile), spec.smem_per_block_bytes);
  EXPECT_LE((contract::SmemBytes(tile) + spec.smem_reserved_bytes) * tile.blocks_per_sm,
            spec.smem_per_sm_bytes);
  EXPECT_LE(tile.launch_registers * contract::Threads(tile) * tile.blocks_per_sm,
            spec.registers_per_sm);
  EXPECT_LE(contract::Threads(tile) * tile.blocks_per_sm, spec.threads_per_sm);
  EXPECT_TRUE(contract::RingRuleHolds(tile));
  EXPECT_LT((tile.warps_vo - 1) * contract::DimsPerWarp(tile), tile.head_dim_vo);
  EXPECT_EQ(query.kv_heads % tile.kv_heads, 0);
}

// P74, P75, P09: every pair of head dims and dtypes has a tile that fits, on every device and for
// every class of rows: by exact counts, with the limit of a block, not that of an SM.
TEST(Tiles, P74_EveryShapeHasATileThatFitsOnEveryDevice) {
  for (const int arch : CudaArchs()) {
    const DeviceSpec spec = CudaSpec(arch);
    for (int qk = 16; qk <= 512; qk += 16) {
      for (int vo = 16; vo <= 512; vo += 16) {
        for (const int k : kFormats) {
          for (const int v : kFormats) {
            // Rows of decode and of prefill for all, the classes between for some.
            const bool all = (qk + vo) % 64 == 0;
            for (const int rows : {8, 16, 32, 64, 128}) {
              if (!all && rows != 8 && rows != 128) continue;
              for (const bool unbuilt : {false, true}) {
                if (unbuilt && !all) continue;
                TileQuery query = Query(rows, qk, vo, k, v);
                query.unbuilt = unbuilt;
                const auto chosen = ChooseTile(query, spec);
                ASSERT_TRUE(chosen) << spec.name << " " << qk << "/" << vo << " " << FormatName(k)
                                    << " " << FormatName(v) << " rows " << rows;
                ExpectFits(query, spec, chosen->tile);
                if (HasFailure()) return;
              }
            }
          }
        }
      }
    }
  }
}

// The tile of all dtypes at once, which unsplit rows of several dtypes need.
TEST(Tiles, MixedDtypesHaveATileForEveryShape) {
  for (const int arch : CudaArchs()) {
    for (int qk = 16; qk <= 512; qk += 16) {
      for (int vo = 16; vo <= 512; vo += 48) {
        for (const int rows : {8, 128}) {
          const TileQuery query = Query(rows, qk, vo, contract::kAnyFormat, contract::kAnyFormat);
          const auto chosen = ChooseTile(query, CudaSpec(arch));
          ASSERT_TRUE(chosen) << arch << " " << qk << "/" << vo;
          ExpectFits(query, CudaSpec(arch), chosen->tile);
        }
      }
    }
  }
}

// A part with 64 KB per block: what fits is taken, what does not is refused with both numbers.
TEST(Tiles, P74_SmallSharedMemoryIsServedOrRefusedWithNumbers) {
  DeviceSpec spec = CudaSpec(80);
  spec.name = "64 KB";
  spec.smem_per_block_bytes = 65536;
  spec.smem_per_sm_bytes = 65536 + spec.smem_reserved_bytes;
  int refused = 0;
  for (int dim = 64; dim <= 512; dim += 64) {
    for (const int format : kFormats) {
      const TileQuery query = Query(128, dim, dim, format, format);
      if (const auto chosen = ChooseTile(query, spec)) {
        ExpectFits(query, spec, chosen->tile);
        continue;
      }
      ++refused;
      ForEachTile(query, spec, [&](const TileShape& tile) {
        const TileCheck check = CheckTile(query, tile, spec);
        ASSERT_NE(check.reason, TileReason::kFeasible);
        if (check.reason != TileReason::kSmem) return;
        EXPECT_GT(check.need, check.limit);
        const std::string text = ReasonText(check, tile, spec);
        EXPECT_NE(text.find(std::to_string(check.need)), std::string::npos) << text;
        EXPECT_NE(text.find(std::to_string(check.limit)), std::string::npos) << text;
      });
    }
  }
  EXPECT_LT(refused, 8);  // 16-bit caches of the widest heads.
}

// Every limit of a spec by hand counts, resident blocks too.
TEST(Tiles, NoMoreResidentBlocksThanTheDeviceHolds) {
  DeviceSpec spec = CudaSpec(86);
  spec.blocks_per_sm = 1;
  const TileQuery query = ModelQuery(8, 128, 128, kNvfp4, kNvfp4);
  EXPECT_EQ(ChooseTile(query, CudaSpec(86))->tile.blocks_per_sm, 2);
  EXPECT_EQ(ChooseTile(query, spec)->tile.blocks_per_sm, 1);
}

TEST(Tiles, CandidatesHaveNamesOfTheirOwn) {
  for (const int arch : CudaArchs()) {
    for (const int rows : {8, 32, 128}) {
      std::set<std::string> names;
      int count = 0;
      ForEachTile(Query(rows, 128, 128, kNvfp4, kNvfp4), CudaSpec(arch),
                  [&](const TileShape& tile) {
                    names.insert(TileName(tile));
                    ++count;
                  });
      EXPECT_EQ(static_cast<int>(names.size()), count) << arch;
      EXPECT_GT(count, 8);
    }
  }
}

// P88: by features and limits, so 12.1 falls neither through 12.0's branch nor out of it.
TEST(Tiles, P88_ArchsWithTheSameLimitsMakeTheSameChoice) {
  for (const auto& [a, b] : {std::pair{120, 121}, std::pair{100, 103}}) {
    for (const int rows : {8, 16, 128}) {
      for (const int dim : {64, 128, 256, 512}) {
        DeviceSpec first = CudaSpec(a), second = CudaSpec(b);
        // Their speeds differ; their limits do not.
        second.slots = first.slots;
        second.read_gb_per_s = first.read_gb_per_s;
        second.clock_ghz = first.clock_ghz;
        second.l2_bytes = first.l2_bytes;
        for (const TileQuery& query :
             {Query(rows, dim, dim, kNvfp4, kNvfp4), ModelQuery(rows, dim, dim, kNvfp4, kNvfp4)}) {
          const auto of_first = ChooseTile(query, first), of_second = ChooseTile(query, second);
          ASSERT_TRUE(of_first && of_second);
          EXPECT_EQ(TileName(of_first->tile), TileName(of_second->tile)) << a << " " << b;
        }
      }
    }
  }
}

// What no kernel runs is a candidate, and refused as such: whatever it costs by the model.
TEST(Tiles, FamiliesWithoutAKernelAreWeighedButNeverChosen) {
  for (const int arch : CudaArchs()) {
    for (const int rows : {8, 16, 32, 64, 128}) {
      const TileQuery query = Query(rows, 128, 128, kNvfp4, kNvfp4);
      const DeviceSpec spec = CudaSpec(arch);
      const auto chosen = ChooseTile(query, spec);
      ASSERT_TRUE(chosen);
      EXPECT_TRUE(contract::HasKernel(static_cast<KernelFamily>(chosen->tile.family)));
      ForEachTile(query, spec, [&](const TileShape& tile) {
        const auto family = static_cast<KernelFamily>(tile.family);
        const TileCheck check = CheckTile(query, tile, spec);
        if (contract::HasKernel(family)) {
          EXPECT_NE(check.reason, TileReason::kNoKernel) << TileName(tile);
        } else if (check.reason != TileReason::kNeedsFeature) {
          EXPECT_EQ(check.reason, TileReason::kNoKernel) << TileName(tile);
          EXPECT_NE(ReasonText(check, tile, spec).find(PathName(family)), std::string::npos);
        }
        EXPECT_NE(CheckTile(ModelQuery(rows, 128, 128, kNvfp4, kNvfp4), tile, spec).reason,
                  TileReason::kNoKernel);
      });
    }
  }
}

TEST(Tiles, WgmmaWhereTheArchHasItAndOnlyThere) {
  for (const int arch : CudaArchs()) {
    const auto chosen = ChooseTile(ModelQuery(128, 128, 128, kNvfp4, kNvfp4), CudaSpec(arch));
    ASSERT_TRUE(chosen);
    const bool wgmma = chosen->tile.family == static_cast<int>(KernelFamily::kPrefillWgmma);
    EXPECT_EQ(wgmma, arch == 90);
  }
}

// The choices that measured best on the H200 (GPU-NOTES section 2): one KV head per block for short
// contexts, two near 150 MB, four beyond 300 MB; whole pages of all heads in NHD.
TEST(Tiles, TheModelChoosesWhatMeasuredBest) {
  const auto heads = [](std::int64_t blocks, std::int64_t keys, bool nhd) {
    TileQuery query = ModelQuery(8, 128, 128, kNvfp4, kNvfp4);
    query.blocks = blocks;
    query.keys = blocks * keys;
    if (nhd) {
      query.whole_heads = false;
      query.copy_bytes = 8;
    }
    return ChooseTile(query, CudaSpec(90))->tile.kv_heads;
  };
  EXPECT_EQ(heads(1, 1024, false), 1);
  EXPECT_EQ(heads(1, 8192, false), 1);
  EXPECT_EQ(heads(1, 131072, false), 2);
  EXPECT_EQ(heads(1, 524288, false), 4);
  EXPECT_EQ(heads(1, 131072, true), 8);
  EXPECT_EQ(heads(64, 8192, true), 8);
}

// And its times are those of the prototype, within a fifth: microseconds of GPU-NOTES section 2.
TEST(Tiles, TheModelsTimesAreNearTheMeasured) {
  struct Row {
    int head_dim, kv_heads, group;
    std::int64_t blocks, keys;
    double us;
  };
  constexpr Row kRows[] = {{128, 8, 4, 1, 1024, 4.85},    {128, 8, 4, 1, 8192, 8.1},
                           {128, 8, 4, 1, 32768, 18.5},   {128, 8, 4, 1, 131072, 46.3},
                           {128, 8, 4, 1, 524288, 150.2}, {128, 8, 4, 16, 8192, 48.3},
                           {128, 8, 4, 64, 8192, 153.7},  {128, 8, 4, 64, 1024, 30.1},
                           {256, 1, 8, 1, 131072, 20.2},  {512, 2, 8, 1, 131072, 48.9}};
  for (const Row& row : kRows) {
    TileQuery query = ModelQuery(8, row.head_dim, row.head_dim, kNvfp4, kNvfp4);
    query.kv_heads = row.kv_heads;
    query.group = row.group;
    query.blocks = row.blocks;
    query.keys = row.blocks * row.keys;
    const double us = ChooseTile(query, CudaSpec(90))->estimate.us;
    EXPECT_NEAR(us / row.us, 1, 0.21) << row.head_dim << ": " << row.blocks << " x " << row.keys
                                      << ", model " << us << ", measured " << row.us;
  }
}

}  // namespace
}  // namespace kvilt::plan::cuda
