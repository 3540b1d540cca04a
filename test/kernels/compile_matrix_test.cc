// Kernels that the planner chooses, compiled for every arch without a GPU: they assemble without
// warnings, hold the registers and the shared memory that the plan counted, and spill little.
//
// The problems of a few scenarios by default; KVILT_COMPILE_MATRIX=all takes every file of
// bench/problems.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>

#include "kvilt/attention.h"
#include "src/core/problem.h"
#include "src/core/problem_data.h"
#include "src/cuda/attention.h"
#include "src/cuda/compiler.h"
#include "src/cuda/nvrtc_fixture.h"
#include "src/plan/plan_data.h"

namespace kvilt::test {
namespace {

// Bytes of a thread that may leave the registers: set-up and results, not the loops over keys.
// Kernels of four blocks on an SM have 128 registers, and their rows are looked up with more.
constexpr int kMostSpillBytes = 256;

std::vector<std::string> ProblemFiles() {
  const char* asked = std::getenv("KVILT_COMPILE_MATRIX");
  std::vector<std::string> files;
  if (asked != nullptr && std::string_view(asked) == "all") {
    for (const auto& entry : std::filesystem::directory_iterator(KVILT_BENCH_PROBLEMS)) {
      if (!entry.path().filename().string().starts_with("plan_")) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    return files;
  }
  for (const char* name : {"decode_16x8k", "decode_bf16", "prefill_8k", "decode_g8_d512_256"}) {
    files.push_back(fmt::format("{}/{}.problem", KVILT_BENCH_PROBLEMS, name));
  }
  return files;
}

struct Job {
  int arch = 0;
  contract::TileShape tile;
  int registers_per_sm = 0;
};

void AddTiles(const core::Problem& problem, std::map<std::pair<int, std::string>, Job>& jobs) {
  for (const int arch : cuda::kTestArchs) {
    const DeviceSpec spec = SpecFor(fmt::format("sm_{}", arch)).value();
    const auto data = core::BuildProblemShape(problem, DeviceKind::kCuda);
    ASSERT_TRUE(data.ok()) << data.status().message();
    const auto plan = MakePlan(data->request(), spec, data->plan_options());
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    for (const contract::LaunchInfo& launch : plan::ViewPlanData(plan->data).launches) {
      jobs.try_emplace({arch, cuda::TileText(launch.tile)},
                       Job{arch, launch.tile, static_cast<int>(spec.registers_per_sm)});
    }
  }
}

// Empty when all is as it should be; `row` becomes a line of the table.
std::string CompileOne(cuda::Compiler& compiler, const Job& job, std::string& row) {
  const auto compiled = compiler.Compile(cuda::AttentionKernel(job.tile), job.arch);
  if (!compiled.ok()) return compiled.status().message();
  const cuda::CubinStats& stats = compiled->cubin->stats;
  row = fmt::format(
      "sm_{:<4} {:>3} rows x {:<3} d {}/{} k{} v{} {}/SM  {:>3} registers {:>4} B spilled {:>7} B "
      "shared {:5.1f} s",
      job.arch, job.tile.q_rows, job.tile.kv_rows, job.tile.head_dim_qk, job.tile.head_dim_vo,
      job.tile.k_format, job.tile.v_format, job.tile.blocks_per_sm, stats.registers,
      stats.spill_bytes, stats.smem_bytes, stats.compile_seconds);
  if (stats.smem_bytes != contract::SmemBytes(job.tile)) {
    return fmt::format("{} bytes of shared memory, the plan says {}", stats.smem_bytes,
                       contract::SmemBytes(job.tile));
  }
  const int threads = contract::Threads(job.tile) * job.tile.blocks_per_sm;
  if (stats.registers * threads > job.registers_per_sm) {
    return fmt::format("{} registers for {} threads of an SM", stats.registers, threads);
  }
  if (stats.spill_bytes > kMostSpillBytes) return fmt::format("{} B spilled", stats.spill_bytes);
  return "";
}

class CompileMatrix : public cuda::NvrtcTest {};

TEST_F(CompileMatrix, WhatThePlannerChoosesAssemblesOnEveryArch) {
  std::map<std::pair<int, std::string>, Job> jobs;
  for (const std::string& file : ProblemFiles()) {
    const std::array<std::string, 1> arguments = {file};
    const auto problems = core::ProblemsFromArguments(arguments);
    ASSERT_TRUE(problems.ok()) << problems.status().message();
    for (const core::Problem& problem : *problems) AddTiles(problem, jobs);
  }
  std::vector<Job> list;
  for (const auto& [key, job] : jobs) list.push_back(job);
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  const auto work = [&] {
    for (std::size_t i = next++; i < list.size(); i = next++) {
      std::string row;
      const std::string failure = CompileOne(cuda::Compiler::Shared(), list[i], row);
      const std::lock_guard lock(mutex);
      if (!row.empty()) fmt::print("{}\n", row);
      EXPECT_EQ(failure, "") << "sm_" << list[i].arch << " " << cuda::TileText(list[i].tile);
    }
  };
  std::thread other(work);
  work();
  other.join();
  fmt::print("{} kernels\n", list.size());
  EXPECT_GT(list.size(), 8u);
}

}  // namespace
}  // namespace kvilt::test
