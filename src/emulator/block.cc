#include "src/emulator/block.h"

#include <bit>
#include <cstddef>
#include <string>
#include <utility>

#include "src/emulator/fail.h"

namespace kvilt::emulator {

constinit thread_local const Place* place = nullptr;

namespace {

const char* NameOf(Meeting meeting) {
  switch (meeting) {
    case Meeting::kBlockSync:
      return "BlockSync";
    case Meeting::kNamedSync:
      return "NamedSync";
    case Meeting::kWarpSync:
      return "WarpSync";
    case Meeting::kShuffleXor:
      return "ShuffleXor";
    case Meeting::kShuffle:
      return "Shuffle";
    case Meeting::kBallot:
      return "Ballot";
    case Meeting::kMmaF16:
      return "MmaF16";
    case Meeting::kMmaBF16:
      return "MmaBF16";
    case Meeting::kLoadMatrix4:
      return "LoadMatrix4";
    case Meeting::kLoadMatrix4Transposed:
      return "LoadMatrix4Transposed";
    case Meeting::kMoveMatrixTransposed:
      return "MoveMatrixTransposed";
  }
  return "?";
}

std::string Describe(const Point& point) {
  std::string text = NameOf(point.meeting);
  if (point.meeting == Meeting::kNamedSync) {
    text += "(" + std::to_string(point.barrier) + ", " + std::to_string(point.threads) + ")";
  }
  return text;
}

}  // namespace

Block::Block(const LaunchShape& shape, void (*body)(void*), void* context, StackPool& stacks)
    : body_(body),
      context_(context),
      stacks_(stacks),
      shared_(shape.smem_bytes),
      threads_(static_cast<std::size_t>(shape.threads)),
      warps_(static_cast<std::size_t>(shape.threads / kLanes)) {
  for (i32 w = 0; w < shape.threads / kLanes; ++w) {
    Warp& warp = warps_[static_cast<std::size_t>(w)];
    warp.block = this;
    warp.index = w;
    warp.lanes = &threads_[static_cast<std::size_t>(w) * kLanes];
    for (i32 lane = 0; lane < kLanes; ++lane) {
      Thread& thread = warp.lanes[lane];
      thread.thread = w * kLanes + lane;
      thread.threads = shape.threads;
      thread.grid = shape.grid;
      thread.shared = shared_.data();
      thread.shared_bytes = shared_.size();
      thread.lane = lane;
      thread.warp = &warp;
    }
  }
}

void Block::Run(i32 index, u64 seed) {
  index_ = index;
  random_ = seed * 0x9E3779B97F4A7C15u + static_cast<u64>(index) * 0xD1B54A32D192ED03u + 1;
  shared_.Poison();
  for (std::size_t i = 0; i < threads_.size(); ++i) {
    threads_[i].block = index;
    stacks_.Prepare(threads_[i].fiber, i, &ThreadMain);
  }
  for (Warp& warp : warps_) {
    warp.ended = 0;
    warp.ring_step = static_cast<i32>(Draw() % kLanes) | 1;
    warp.next = &warp.lanes[Draw() % kLanes];
    runnable_ |= 1u << warp.index;
  }
  // A quarter of all blocks change warps at barriers only.
  preempt_every_ = Draw() % 4 == 0 ? 0 : 1 << (1 + Draw() % 6);
  DrawPreemption();

  Thread& first = ChooseWarp();
  place = &first;
  SwitchFiber(launcher_, first.fiber);
  place = nullptr;
  shared_.CheckEnd();
}

void Block::ThreadMain() {
  OnFiberEntry();
  Thread& self = Self();
  Block& block = *self.warp->block;
  block.body_(block.context_);
  block.EndThread(self);
}

void Block::EndThread(Thread& self) {
  Warp& warp = *self.warp;
  if (self.copies.size() != 0) {
    Fail("block %d, thread %d: ended with %zu copies that no CopyWait has covered", index_,
         self.thread, self.copies.size());
  }
  self.copies.clear();
  if (warp.arrived != 0) {
    Fail("block %d, warp %d: lanes at %s and ended", index_, warp.index,
         Describe(warp.point).c_str());
  }
  Thread* next = &NextLane(self);
  if (++warp.ended == kLanes) {
    runnable_ &= ~(1u << warp.index);
    bool all_ended = true;
    for (const Warp& other : warps_) all_ended = all_ended && other.ended == kLanes;
    if (all_ended) {
      LeaveFiber(self.fiber, launcher_);
      return;
    }
    next = &ChooseWarp();
  }
  place = next;
  LeaveFiber(self.fiber, next->fiber);
}

void Block::Arrive(Thread& self, i32 number, i32 threads) {
  Warp& warp = *self.warp;
  Barrier& barrier = barriers_[number];
  if (barrier.arrived == 0) {
    barrier.threads = threads;
  } else if (barrier.threads != threads) {
    Fail("block %d: barrier %d is asked for %d and for %d threads", index_, number, barrier.threads,
         threads);
  }
  barrier.arrived += kLanes;
  if (barrier.arrived < threads) {
    barrier.warps |= 1u << warp.index;
    runnable_ &= ~(1u << warp.index);
    warp.next = &self;
    SwitchTo(self, ChooseWarp());
    return;
  }
  runnable_ |= std::exchange(barrier, {}).warps;
}

void Block::Preempt(Thread& self) {
  DrawPreemption();
  if (preempt_every_ == 0) return;
  self.warp->next = &self;
  SwitchTo(self, ChooseWarp());
}

void Block::DrawPreemption() {
  meetings_until_preempted_ = preempt_every_ == 0
                                  ? 1 << 30
                                  : 1 + static_cast<i32>(Draw() % static_cast<u64>(preempt_every_));
}

Thread& Block::ChooseWarp() {
  if (runnable_ == 0) FailDeadlock();
  const int turn = static_cast<int>(Draw() % 32);
  const int chosen = (std::countr_zero(std::rotr(runnable_, turn)) + turn) % 32;
  return *warps_[static_cast<std::size_t>(chosen)].next;
}

// splitmix64
u64 Block::Draw() {
  random_ += 0x9E3779B97F4A7C15u;
  u64 z = random_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

void Block::FailDiverged(const Warp& warp, const Point& point) const {
  Fail("block %d, warp %d: lanes %s and at %s", index_, warp.index,
       warp.ended != 0 ? "ended" : ("at " + Describe(warp.point)).c_str(), Describe(point).c_str());
}

void Block::FailDeadlock() const {
  std::string text;
  for (i32 i = 0; i < kBarriers; ++i) {
    const Barrier& barrier = barriers_[i];
    if (barrier.arrived == 0) continue;
    text += (text.empty() ? "barrier " : ", barrier ") + std::to_string(i) + " waits for " +
            std::to_string(barrier.threads) + " threads, " + std::to_string(barrier.arrived) +
            " arrived";
  }
  bool ended = false;
  for (const Warp& warp : warps_) ended = ended || warp.ended != 0;
  Fail("block %d: %s%s", index_, text.c_str(), ended ? ", the rest has ended" : "");
}

}  // namespace kvilt::emulator
