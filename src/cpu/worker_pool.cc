#include "src/cpu/worker_pool.h"

#include <pthread.h>

#include <new>

#include "src/core/check.h"

namespace kvilt::cpu {
namespace {

// Polls of the state before a thread sleeps: some tens of microseconds, the gap between the
// launches of a model's layers, and little enough that an idle pool costs nothing.
constexpr int kSpins = 2000;

// The pool whose loop this thread is in, to catch loops inside loops (which would never end).
thread_local const WorkerPool* current_pool = nullptr;

std::atomic<std::uint32_t> fork_count{0};
// Orders loops in a forked child, where a pool's own mutex may have been copied while locked.
std::mutex child_loop;

void AfterForkInChild() {
  fork_count.fetch_add(1, std::memory_order_relaxed);
  new (&child_loop) std::mutex;  // The child has one thread, and nobody can hold it.
}

std::uint32_t ForkCount() {
  static const int registered = pthread_atfork(nullptr, nullptr, AfterForkInChild);
  KVILT_CHECK(registered == 0);
  return fork_count.load(std::memory_order_relaxed);
}

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

WorkerPool::WorkerPool(int threads) : threads_(threads), fork_count_(ForkCount()) {
  KVILT_CHECK(threads >= 1 && threads <= kMaxThreads);
  workers_.reserve(static_cast<std::size_t>(threads - 1));
  try {
    for (int worker = 1; worker < threads; ++worker) {
      workers_.emplace_back([this, worker] { WorkerMain(worker); });
    }
  } catch (...) {
    StopWorkers();
    throw;
  }
}

WorkerPool::~WorkerPool() {
  if (fork_count_ != ForkCount()) {
    // These threads exist only in the parent: neither joining nor destroying the handles is legal.
    // NOLINTNEXTLINE(bugprone-unused-raii, bugprone-unhandled-exception-at-new): leaked on purpose.
    new std::vector<std::thread>(std::move(workers_));
    return;
  }
  StopWorkers();
}

void WorkerPool::StopWorkers() {
  state_.store(kStop);
  state_.notify_all();
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

void WorkerPool::Run(std::int64_t count, void* context, Call call) {
  KVILT_CHECK(current_pool != this);
  if (count <= 0) return;
  if (fork_count_ != ForkCount()) {
    const std::lock_guard lock(child_loop);
    RunAlone(count, context, call);
    return;
  }
  const std::lock_guard lock(one_loop_);
  if (threads_ == 1 || count == 1) {
    RunAlone(count, context, call);
    return;
  }
  const WorkerPool* const outer = current_pool;
  current_pool = this;
  count_ = count;
  context_ = context;
  call_ = call;
  next_index_.store(0, std::memory_order_relaxed);
  const std::uint32_t generation = (state_.load() >> kGenerationShift) + 1;
  state_.store(generation << kGenerationShift | kOpen);
  state_.notify_all();
  TakeIndices(0);
  state_.fetch_and(~kOpen);
  WaitUntilWorkersLeft();
  current_pool = outer;
}

void WorkerPool::RunAlone(std::int64_t count, void* context, Call call) {
  const WorkerPool* const outer = current_pool;
  current_pool = this;
  for (std::int64_t index = 0; index < count; ++index) call(context, 0, index);
  current_pool = outer;
}

void WorkerPool::TakeIndices(int worker) {
  for (;;) {
    const std::int64_t index = next_index_.fetch_add(1, std::memory_order_relaxed);
    if (index >= count_) return;
    call_(context_, worker, index);
  }
}

void WorkerPool::WaitUntilWorkersLeft() {
  for (int spin = 0; spin < kSpins; ++spin) {
    if ((state_.load() & kInside) == 0) return;
    Pause();
  }
  for (;;) {
    const std::uint32_t seen = departures_.load();
    if ((state_.load() & kInside) == 0) return;
    departures_.wait(seen);
  }
}

bool WorkerPool::TryJoin(std::uint32_t& last_generation) {
  std::uint32_t state = state_.load();
  while ((state & kOpen) != 0 && state >> kGenerationShift != last_generation) {
    if (state_.compare_exchange_weak(state, state + 1)) {
      last_generation = state >> kGenerationShift;
      return true;
    }
  }
  return false;
}

void WorkerPool::WorkerMain(int worker) {
  current_pool = this;
  std::uint32_t last_generation = 0xFFFFFFFF;  // None: generations have 16 bits.
  int spins = 0;
  for (;;) {
    const std::uint32_t seen = state_.load();
    if (seen == kStop) return;
    if (TryJoin(last_generation)) {
      TakeIndices(worker);
      // The last one out of a closed loop wakes the caller, who may be asleep.
      if ((state_.fetch_sub(1) & (kOpen | kInside)) == 1) {
        departures_.fetch_add(1);
        departures_.notify_one();
      }
      spins = 0;
    } else if (++spins < kSpins) {
      Pause();
    } else {
      state_.wait(seen);
      spins = 0;
    }
  }
}

}  // namespace kvilt::cpu
