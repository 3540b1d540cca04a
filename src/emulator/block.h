// One block of threads on one OS thread: lanes that meet, warps that wait at barriers.
//
//   lanes of a warp, a ring:  l0 -> l1 -> ... -> l31     each runs until it meets the others at a
//                              ^---------------|         warp-wide function; the last one does its
//                                                        work for all and goes on
//   warps:                    runnable <-> at a barrier -> ended
//
// The direction of the ring, the next warp, and whether a warp goes on after lanes have met are
// drawn from the seed.
#pragma once

#include <vector>

#include "src/contract/types.h"
#include "src/emulator/copies.h"
#include "src/emulator/emulator.h"
#include "src/emulator/fiber.h"
#include "src/emulator/place.h"
#include "src/emulator/shared_memory.h"

namespace kvilt::emulator {

using contract::i32;
using contract::i64;
using contract::u32;
using contract::u64;
using contract::u8;

inline constexpr i32 kLanes = 32;
inline constexpr i32 kBarriers = 16;

// What lanes meet at.
enum class Meeting : u32 {
  kBlockSync,
  kNamedSync,
  kWarpSync,
  kShuffleXor,
  kShuffle,
  kBallot,
  kMmaF16,
  kMmaBF16,
  kLoadMatrix4,
  kLoadMatrix4Transposed,
  kMoveMatrixTransposed,
};

// A meeting with what all lanes must give alike: for a barrier its number and threads.
struct Point {
  Meeting meeting = Meeting::kWarpSync;
  i32 barrier = 0;
  i32 threads = 0;
  friend constexpr bool operator==(const Point&, const Point&) = default;
};

struct Warp;
class Block;

struct Thread : Place {
  Fiber fiber;
  i32 lane = 0;
  Warp* warp = nullptr;
  PendingCopies copies;
};

// The register files of a meeting: [register][lane].
struct Warp {
  alignas(64) u32 in[6][kLanes] = {};
  alignas(64) u32 out[4][kLanes] = {};
  alignas(64) float sums[4][kLanes] = {};
  const void* rows[kLanes] = {};

  Block* block = nullptr;
  Thread* lanes = nullptr;
  i32 index = 0;
  i32 ring_step = 1;  // Odd, so that the ring visits all lanes.
  i32 arrived = 0;    // Lanes at `point`.
  i32 ended = 0;      // Lanes.
  Point point;
  Thread* next = nullptr;  // Who goes on when the warp is chosen.
};

class Block {
 public:
  Block(const LaunchShape& shape, void (*body)(void*), void* context, StackPool& stacks);

  void Run(i32 index, u64 seed);

  // Waits until all lanes of the warp are at `point`; `complete(warp)` runs once, for all of them.
  template <class Complete>
  void Meet(Thread& self, const Point& point, Complete complete) {
    Warp& warp = *self.warp;
    if (warp.arrived == 0 && warp.ended == 0) {
      warp.point = point;
    } else if (!(warp.point == point) || warp.ended != 0) {
      FailDiverged(warp, point);
    }
    if (++warp.arrived < kLanes) {
      SwitchTo(self, NextLane(self));
      return;
    }
    warp.arrived = 0;
    complete(warp);
    if (--meetings_until_preempted_ <= 0) Preempt(self);
  }

  // All lanes of the warp have met; goes on when `threads` threads have come.
  void Arrive(Thread& self, i32 barrier, i32 threads);

 private:
  struct Barrier {
    i32 threads = 0;
    i32 arrived = 0;
    u32 warps = 0;  // That wait.
  };

  static void ThreadMain();
  void EndThread(Thread& self);
  void SwitchTo(Thread& from, Thread& to) {
    if (&from == &to) return;
    place = &to;
    SwitchFiber(from.fiber, to.fiber);
  }
  Thread& NextLane(const Thread& self) {
    return self.warp->lanes[(self.lane + self.warp->ring_step) & (kLanes - 1)];
  }
  // Another warp, if the seed says so.
  void Preempt(Thread& self);
  // One that can go on; when there is none, that is a deadlock.
  Thread& ChooseWarp();
  u64 Draw();
  void DrawPreemption();

  [[noreturn]] void FailDiverged(const Warp& warp, const Point& point) const;
  [[noreturn]] void FailDeadlock() const;

  void (*body_)(void*);
  void* context_;
  StackPool& stacks_;
  SharedMemoryBytes shared_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  Fiber launcher_;
  Barrier barriers_[kBarriers];
  u32 runnable_ = 0;  // Warps that neither wait nor have ended.
  u64 random_ = 1;
  i32 preempt_every_ = 0;  // At most so many meetings; 0: never.
  i32 meetings_until_preempted_ = 0;
  i32 index_ = 0;
};

inline Thread& Self() { return *const_cast<Thread*>(static_cast<const Thread*>(place)); }

}  // namespace kvilt::emulator
