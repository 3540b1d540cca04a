// WorkerPool: the threads of one CPU device, for loops whose bodies do not depend on each other.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace kvilt::cpu {

// A fixed set of workers that run one loop at a time.
//
// Worker 0 is the calling thread; workers 1 .. threads() - 1 belong to the pool, spin briefly for
// the next loop and then sleep. Indices are handed out one by one in ascending order, so unequal
// bodies balance themselves; which worker gets which index is not determined.
//
// Thread-safe: loops started from several threads run one after another.
// Fork: the child has no workers, so there every loop runs on its calling thread alone, and the
// destructor lets the dead threads be. Open a new device in the child to have threads again.
class WorkerPool {
 public:
  // REQUIRES: 1 <= threads <= kMaxThreads. Throws std::system_error when the system refuses a
  // thread; nothing is left running then.
  explicit WorkerPool(int threads);
  ~WorkerPool();  // REQUIRES: no loop is running.
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  static constexpr int kMaxThreads = 1024;

  int threads() const { return threads_; }

  // Calls body(int worker, int64_t index) once for each index in [0, count) and returns when all
  // calls have returned; what they wrote is visible to the caller. Bodies that run at the same time
  // have different `worker`, 0 <= worker < threads(). Allocates nothing.
  // The body must not start a loop on the same pool (aborts) and must not throw (terminates).
  template <class Body>
  void ParallelFor(std::int64_t count, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    static_assert(std::is_invocable_v<Plain&, int, std::int64_t>,
                  "body(int worker, int64_t index)");
    Run(count, const_cast<void*>(static_cast<const void*>(std::addressof(body))),
        [](void* context, int worker, std::int64_t index) noexcept {
          (*static_cast<Plain*>(context))(worker, index);
        });
  }

 private:
  using Call = void (*)(void* context, int worker, std::int64_t index) noexcept;

  void Run(std::int64_t count, void* context, Call call);
  void RunAlone(std::int64_t count, void* context, Call call);
  void TakeIndices(int worker);
  void WorkerMain(int worker);
  bool TryJoin(std::uint32_t& last_generation);
  void WaitUntilWorkersLeft();
  void StopWorkers();

  // state_: generation of the loop in the high 16 bits, then "open for joining", then the number of
  // workers inside. A worker joins an open loop by one compare-and-swap, so a worker that wakes
  // late never touches a loop that has ended, and the caller waits only for those who joined.
  static constexpr std::uint32_t kInside = 0x7FFF;
  static constexpr std::uint32_t kOpen = 0x8000;
  static constexpr std::uint32_t kStop = kInside;  // More workers than there can be.
  static constexpr int kGenerationShift = 16;

  const int threads_;
  const std::uint32_t fork_count_;  // At construction; differs in a forked child.
  std::mutex one_loop_;             // Held for the whole of a loop.

  // The loop; written before it opens, constant while it is open.
  std::int64_t count_ = 0;
  void* context_ = nullptr;
  Call call_ = nullptr;

  alignas(64) std::atomic<std::int64_t> next_index_{0};
  alignas(64) std::atomic<std::uint32_t> state_{0};
  alignas(64) std::atomic<std::uint32_t> departures_{0};  // Wakes the caller at the end of a loop.
  std::vector<std::thread> workers_;
};

}  // namespace kvilt::cpu
