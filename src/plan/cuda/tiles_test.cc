#include "src/plan/cuda/tiles.h"

#include <gtest/gtest.h>

#include "src/plan/cuda/tile_candidates.h"
#include "src/plan/device_table.h"

namespace kvilt::plan::cuda {
namespace {
TEST(Tiles, Print) {
  const int kBf16 = 1, kE4M3 = 3, kNvfp4 = 5;
  struct S {
    const char* n;
    int rows, group, kv_heads, qk, vo;
    long blocks, keys;
  };
  for (int f : {kNvfp4, kE4M3, kBf16})
    for (const S& s :
         {S{"1x1k", 4, 4, 8, 128, 128, 1, 1024}, S{"1x8k", 4, 4, 8, 128, 128, 1, 8192},
          S{"1x32k", 4, 4, 8, 128, 128, 1, 32768}, S{"1x128k", 4, 4, 8, 128, 128, 1, 131072},
          S{"1x512k", 4, 4, 8, 128, 128, 1, 524288}, S{"16x8k", 4, 4, 8, 128, 128, 16, 131072},
          S{"64x8k", 4, 4, 8, 128, 128, 64, 524288}, S{"64x1k", 4, 4, 8, 128, 128, 64, 65536},
          S{"256 1x128k", 8, 8, 1, 256, 256, 1, 131072},
          S{"512 1x128k", 8, 8, 2, 512, 512, 1, 131072}, S{"512/256", 8, 8, 2, 512, 256, 1, 131072},
          S{"verify4x4", 16, 4, 8, 128, 128, 1, 131072},
          S{"verify8", 32, 4, 8, 128, 128, 1, 131072},
          S{"prefill8k", 128, 4, 8, 128, 128, 256, 256 * 4096},
          S{"prefill2k", 128, 4, 8, 128, 128, 64, 64 * 1024},
          S{"prefill512", 128, 8, 2, 512, 512, 64, 64 * 1024}}) {
      for (int arch : {90, 120, 86}) {
        TileQuery q;
        q.rows = s.rows;
        q.group = s.group;
        q.kv_heads = s.kv_heads;
        q.head_dim_qk = s.qk;
        q.head_dim_vo = s.vo;
        q.k_format = q.v_format = f;
        q.blocks = s.blocks;
        q.keys = s.keys;
        const auto c = ChooseTile(q, CudaSpec(arch));
        if (!c) {
          printf("%d %s %d: none\n", f, s.n, arch);
          continue;
        }
        const auto& e = c->estimate;
        printf(
            "%d %-10s sm_%d %-50s %8.1f us mem %.1f issue %.1f mma %.1f copy %.1f merge %.1f smem "
            "%d regs %d/%d reduce %d kv%d vo%d\n",
            f, s.n, arch, TileName(c->tile).c_str(), e.us, e.memory_us, e.issue_us, e.mma_us,
            e.copy_us, e.merge_us, contract::SmemBytes(c->tile), RegistersNeeded(c->tile),
            RegistersOf(c->tile), c->tile.reduce_slots, c->tile.warps_kv, c->tile.warps_vo);
      }
    }
}
}  // namespace
}  // namespace kvilt::plan::cuda
