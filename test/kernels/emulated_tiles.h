// The tiles that tests compile for the emulator. Each .cc of this folder that defines
// KVILT_EMULATED_TILES adds some, so that they compile in parallel.
#pragma once

#include <vector>

#include "src/contract/attention_args.h"

namespace kvilt::test {

struct EmulatedTile {
  contract::TileShape tile;
  void (*run)(const contract::AttentionArgs& args, int grid, std::uint64_t seed);
  int runs = 0;
};
std::vector<EmulatedTile>& EmulatedTiles();
struct TileText {
  int k_format, v_format, q_rows, kv_rows, head_dim_qk, head_dim_vo, stages, warps_kv, warps_vo;
  int copy_bytes = 16, q_parts = 1, k_parts = 1;
};
constexpr contract::TileShape PrefillTile(const TileText& text) {
  contract::TileShape tile;
  tile.family = static_cast<int>(contract::KernelFamily::kPrefill);
  tile.k_format = text.k_format;
  tile.v_format = text.v_format;
  tile.q_rows = text.q_rows;
  tile.kv_rows = text.kv_rows;
  tile.head_dim_qk = text.head_dim_qk;
  tile.head_dim_vo = text.head_dim_vo;
  tile.stages = text.stages;
  tile.warps_rows = text.q_rows / 16;
  tile.warps_kv = text.warps_kv;
  tile.warps_vo = text.warps_vo;
  tile.copy_bytes = text.copy_bytes;
  tile.q_parts = text.q_parts;
  tile.k_parts = text.k_parts;
  tile.q_in_smem = 1;
  tile.reduce_slots = text.warps_kv / 2;
  const bool decodes = !contract::Is16Bit(text.k_format) || !contract::Is16Bit(text.v_format);
  tile.operand_stages = decodes || text.k_parts > 1;
  return tile;
}

}  // namespace kvilt::test
