// A plain read: the ceiling that benchmarks hold kernels against.
#pragma once

#include "read_args.h"
#include "simt.cuh"

namespace kvilt::kernels {

using namespace simt;  // NOLINT: the machine's words.
using contract::ReadArgs;

// Any grid. Eight loads of 16 bytes of each thread are in flight.
inline void Read(const ReadArgs& args) {
  constexpr i32 kLoads = 8;
  const i64 threads = i64{GridBlocks()} * BlockThreads();
  const i64 fours = args.words / 4;
  u32 sum = 0;
  for (i64 i = i64{BlockIndex()} * BlockThreads() + ThreadIndex(); i < fours;
       i += threads * kLoads) {
    u32 words[kLoads][4] = {};
    KVILT_UNROLLED
    for (i32 l = 0; l < kLoads; ++l) {
      if (i + l * threads < fours) LoadFour(args.data + 4 * (i + l * threads), words[l]);
    }
    KVILT_UNROLLED
    for (i32 l = 0; l < kLoads; ++l) sum ^= words[l][0] ^ words[l][1] ^ words[l][2] ^ words[l][3];
  }
  // Never true for bytes as benchmarks have them, and the compiler cannot know.
  if (sum == 0x9E3779B9u) *args.sink = sum;
}

}  // namespace kvilt::kernels
