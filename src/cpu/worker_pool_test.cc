#include "src/cpu/worker_pool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

namespace kvilt::cpu {
namespace {

TEST(WorkerPool, RunsEachIndexOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    WorkerPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const std::int64_t count : {0, 1, 2, 7, 64, 1000}) {
      std::vector<int> calls(static_cast<std::size_t>(count), 0);
      pool.ParallelFor(count, [&](int worker, std::int64_t index) {
        ASSERT_GE(worker, 0);
        ASSERT_LT(worker, threads);
        ++calls[static_cast<std::size_t>(index)];
      });
      for (const int n : calls) EXPECT_EQ(n, 1) << threads << " threads, " << count << " indices";
    }
  }
}

TEST(WorkerPool, OneThreadRunsInlineInOrder) {
  WorkerPool pool(1);
  std::vector<std::int64_t> order;
  const std::thread::id caller = std::this_thread::get_id();
  pool.ParallelFor(5, [&](int worker, std::int64_t index) {
    EXPECT_EQ(worker, 0);
    EXPECT_EQ(std::this_thread::get_id(), caller);
    order.push_back(index);
  });
  EXPECT_EQ(order, (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
}

// A body may use scratch of its worker without any lock.
TEST(WorkerPool, WorkersAreExclusive) {
  WorkerPool pool(4);
  struct alignas(64) Scratch {
    std::int64_t sum = 0;
  };
  for (int round = 0; round < 200; ++round) {
    std::vector<Scratch> scratch(4);
    pool.ParallelFor(50, [&](int worker, std::int64_t index) {
      scratch[static_cast<std::size_t>(worker)].sum += index;
    });
    std::int64_t sum = 0;
    for (const Scratch& s : scratch) sum += s.sum;
    ASSERT_EQ(sum, 50 * 49 / 2);
  }
}

TEST(WorkerPool, UsesItsWorkers) {
  WorkerPool pool(2);
  std::atomic<int> inside{0};
  // Both indices wait for each other, so this ends only if two threads take part.
  pool.ParallelFor(2, [&](int, std::int64_t) {
    ++inside;
    while (inside.load() < 2) std::this_thread::yield();
  });
  EXPECT_EQ(inside.load(), 2);
}

TEST(WorkerPool, WakesSleepingWorkers) {
  WorkerPool pool(2);
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // Longer than they spin.
    std::atomic<int> inside{0};
    pool.ParallelFor(2, [&](int, std::int64_t) {
      ++inside;
      while (inside.load() < 2) std::this_thread::yield();
    });
  }
}

// The caller falls asleep at the end of its own share and is woken by the last worker.
TEST(WorkerPool, WaitsForSlowWorkers) {
  WorkerPool pool(2);
  std::atomic<int> inside{0};
  int done[2] = {};
  pool.ParallelFor(2, [&](int worker, std::int64_t index) {
    ++inside;
    while (inside.load() < 2) std::this_thread::yield();
    if (worker != 0) std::this_thread::sleep_for(std::chrono::milliseconds(30));
    done[index] = 1;
  });
  EXPECT_EQ(done[0] + done[1], 2);
}

TEST(WorkerPool, CallersFromSeveralThreadsTakeTurns) {
  WorkerPool pool(3);
  int shared = 0;  // Not atomic: only one loop may run at a time, and each has one index here.
  std::vector<std::thread> callers;
  std::atomic<std::int64_t> total{0};
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < 100; ++round) {
        pool.ParallelFor(1, [&](int, std::int64_t) { ++shared; });
        pool.ParallelFor(10, [&](int, std::int64_t index) { total += index; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(shared, 400);
  EXPECT_EQ(total.load(), 4 * 100 * 45);
}

TEST(WorkerPool, LoopsOnOtherPoolsMayNest) {
  WorkerPool outer(2);
  WorkerPool inner(2);
  std::atomic<int> calls{0};
  outer.ParallelFor(
      4, [&](int, std::int64_t) { inner.ParallelFor(3, [&](int, std::int64_t) { ++calls; }); });
  EXPECT_EQ(calls.load(), 12);
}

TEST(WorkerPoolDeathTest, LoopInsideItsOwnLoopAborts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        WorkerPool pool(1);
        pool.ParallelFor(1,
                         [&](int, std::int64_t) { pool.ParallelFor(1, [](int, std::int64_t) {}); });
      },
      "internal error");
}

TEST(WorkerPool, SurvivesFork) {
  auto pool = std::make_unique<WorkerPool>(4);
  pool->ParallelFor(100, [](int, std::int64_t) {});
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::int64_t sum = 0;  // Plain: in the child everything runs on this thread.
    pool->ParallelFor(100, [&](int, std::int64_t index) { sum += index; });
    pool.reset();
    _exit(sum == 4950 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  std::atomic<std::int64_t> sum{0};
  pool->ParallelFor(100, [&](int, std::int64_t index) { sum += index; });
  EXPECT_EQ(sum.load(), 4950);
}

}  // namespace
}  // namespace kvilt::cpu
