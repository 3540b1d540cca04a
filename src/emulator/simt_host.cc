#include "src/emulator/simt_host.h"

#include <algorithm>
#include <cstdint>

#include "src/emulator/block.h"
#include "src/emulator/fail.h"
#include "src/emulator/fragments.h"

namespace kvilt::simt {

using emulator::Block;
using emulator::Fail;
using emulator::kLanes;
using emulator::Meeting;
using emulator::Point;
using emulator::Self;
using emulator::Thread;
using emulator::Warp;

namespace {

template <class Complete>
void Meet(Thread& self, Meeting meeting, Complete complete) {
  self.warp->block->Meet(self, {meeting}, complete);
}

// Aborts unless p is the start of `bytes` bytes of shared memory, aligned to them.
void CheckShared(const Thread& self, const void* p, i32 bytes, const char* who) {
  const auto offset = static_cast<i64>(reinterpret_cast<std::intptr_t>(p) -
                                       reinterpret_cast<std::intptr_t>(self.shared));
  if (offset < 0 || offset + bytes > self.shared_bytes) {
    Fail("block %d, thread %d: %s of %d bytes at offset %lld of %lld bytes of shared memory",
         self.block, self.thread, who, bytes, offset, self.shared_bytes);
  }
  if (offset % bytes != 0) {
    Fail("block %d, thread %d: %s at offset %lld, which %d does not divide", self.block,
         self.thread, who, offset, bytes);
  }
}

void Barrier(Thread& self, const Point& point) {
  Block& block = *self.warp->block;
  bool last = false;
  block.Meet(self, point, [&](Warp&) { last = true; });
  if (last) block.Arrive(self, point.barrier, point.threads);
}

using MultiplyAdd = void (*)(float (&)[4][32], const u32 (&)[6][32]);

void Mma(Meeting meeting, MultiplyAdd multiply_add, float (&d)[4], const u32 (&a)[4], u32 b0,
         u32 b1) {
  Thread& self = Self();
  Warp& warp = *self.warp;
  for (i32 i = 0; i < 4; ++i) {
    warp.in[i][self.lane] = a[i];
    warp.sums[i][self.lane] = d[i];
  }
  warp.in[4][self.lane] = b0;
  warp.in[5][self.lane] = b1;
  Meet(self, meeting, [&](Warp& w) { multiply_add(w.sums, w.in); });
  for (i32 i = 0; i < 4; ++i) d[i] = warp.sums[i][self.lane];
}

using Load = void (*)(u32 (&)[4][32], const void* const (&)[32]);

void LoadMatrices(Meeting meeting, Load load, u32 (&r)[4], const void* row, const char* who) {
  Thread& self = Self();
  Warp& warp = *self.warp;
  CheckShared(self, row, 16, who);
  warp.rows[self.lane] = row;
  Meet(self, meeting, [&](Warp& w) { load(w.out, w.rows); });
  for (i32 i = 0; i < 4; ++i) r[i] = warp.out[i][self.lane];
}

// out[0] of each lane is in[0] of the lane that its in[1] names.
u32 Gather(Meeting meeting, u32 v, i32 from) {
  Thread& self = Self();
  Warp& warp = *self.warp;
  warp.in[0][self.lane] = v;
  warp.in[1][self.lane] = static_cast<u32>(from) & 31u;
  Meet(self, meeting, [](Warp& w) {
    for (i32 i = 0; i < kLanes; ++i) w.out[0][i] = w.in[0][w.in[1][i]];
  });
  return warp.out[0][self.lane];
}

}  // namespace

u32 SharedAddress(const void* p) {
  CheckShared(Self(), p, 1, "SharedAddress");
  return static_cast<u32>(static_cast<const u8*>(p) - emulator::place->shared);
}

void BlockSync() { Barrier(Self(), {Meeting::kBlockSync, 0, BlockThreads()}); }

void NamedSync(i32 id, i32 threads) {
  Thread& self = Self();
  if (id < 1 || id >= emulator::kBarriers || threads < kLanes || threads > self.threads ||
      threads % kLanes != 0) {
    Fail("block %d, thread %d: NamedSync(%d, %d)", self.block, self.thread, id, threads);
  }
  Barrier(self, {Meeting::kNamedSync, id, threads});
}

void WarpSync() {
  Meet(Self(), Meeting::kWarpSync, [](Warp&) {});
}

u32 ShuffleXor(u32 v, i32 mask) { return Gather(Meeting::kShuffleXor, v, LaneIndex() ^ mask); }
u32 Shuffle(u32 v, i32 lane) { return Gather(Meeting::kShuffle, v, lane); }

u32 Ballot(bool predicate) {
  Thread& self = Self();
  Warp& warp = *self.warp;
  warp.in[0][self.lane] = predicate ? 1u : 0u;
  Meet(self, Meeting::kBallot, [](Warp& w) {
    u32 votes = 0;
    for (i32 i = 0; i < kLanes; ++i) votes |= w.in[0][i] << i;
    std::fill_n(w.out[0], kLanes, votes);
  });
  return warp.out[0][self.lane];
}

void MmaF16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  Mma(Meeting::kMmaF16, &emulator::MultiplyAddF16, d, a, b0, b1);
}
void MmaBF16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  Mma(Meeting::kMmaBF16, &emulator::MultiplyAddBF16, d, a, b0, b1);
}

void LoadMatrix4(u32 (&r)[4], const void* row) {
  LoadMatrices(Meeting::kLoadMatrix4, &emulator::LoadRows, r, row, "LoadMatrix4");
}
void LoadMatrix4Transposed(u32 (&r)[4], const void* row) {
  LoadMatrices(Meeting::kLoadMatrix4Transposed, &emulator::LoadRowsTransposed, r, row,
               "LoadMatrix4Transposed");
}

u32 MoveMatrixTransposed(u32 v) {
  Thread& self = Self();
  Warp& warp = *self.warp;
  warp.in[0][self.lane] = v;
  Meet(self, Meeting::kMoveMatrixTransposed,
       [](Warp& w) { emulator::Transpose(w.out[0], w.in[0]); });
  return warp.out[0][self.lane];
}

void CopyCommit() { Self().copies.Commit(); }

}  // namespace kvilt::simt

namespace kvilt::emulator {

void IssueCopy(void* shared, const void* global, i32 bytes, bool present) {
  Thread& self = Self();
  simt::CheckShared(self, shared, bytes, "CopyAsync");
  if (reinterpret_cast<std::uintptr_t>(global) % static_cast<std::uintptr_t>(bytes) != 0 ||
      (present && global == nullptr)) {
    Fail("block %d, thread %d: CopyAsync of %d bytes from %p", self.block, self.thread, bytes,
         global);
  }
  self.copies.Issue(shared, present ? global : nullptr, bytes);
}

void FinishCopies(i32 pending) { Self().copies.Wait(pending); }

}  // namespace kvilt::emulator
