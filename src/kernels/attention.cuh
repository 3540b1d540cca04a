// The attention kernel of a tile, whatever its family.
#pragma once

#include "prefill.cuh"

// Dynamic shared memory of a block, for the launcher and the compile matrix to compare.
#define KVILT_SMEM_BYTES(...) ::kvilt::contract::SmemBytes(__VA_ARGS__)

namespace kvilt::kernels {

// Every thread of a grid of LaunchInfo::grid blocks of Threads(kTile).
template <TileShape kTile>
inline void Attention(const AttentionArgs& args) {
  static_assert(contract::RingRuleHolds(kTile));
  static_assert(kTile.family == static_cast<i32>(contract::KernelFamily::kPrefill));
  WaitForPrevious();
  Prefill<kTile>(args).Run();
  LetNextStart();
}

}  // namespace kvilt::kernels
