// Instantiates a prefill tile for the emulator.
#pragma once

#include "src/emulator/emulator.h"
#include "src/kernels/attention.cuh"
#include "test/kernels/emulated_tiles.h"

namespace kvilt::test {

template <contract::TileShape kTile>
void RunTile(const contract::AttentionArgs& args, int grid, std::uint64_t seed) {
  emulator::Launch({grid, contract::Threads(kTile), contract::SmemBytes(kTile), seed},
                   [&] { kernels::Attention<kTile>(args); });
}
// Adds a tile for each text.
template <TileText... kTexts>
struct AddTiles {
  AddTiles() {
    (EmulatedTiles().push_back({PrefillTile(kTexts), &RunTile<PrefillTile(kTexts)>, 0}), ...);
  }
};

}  // namespace kvilt::test
