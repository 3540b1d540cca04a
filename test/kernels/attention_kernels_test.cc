// The attention kernels of a GPU, on the emulator, against the float64 oracle: the sweep's problems
// with dims and dtypes that have an emulated tile.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <set>

#include "cli/check_problem.h"
#include "cli/sweep.h"
#include "src/cuda/kernel_key.h"
#include "src/oracle/oracle.h"
#include "src/plan/plan_data.h"
#include "test/kernels/emulated.h"
#include "test/kernels/emulated_tiles.h"

namespace kvilt::test {
namespace {

DeviceSpec SmallGpu() { return SpecFor("sm_90:4").value(); }

std::string Conforms(const core::Problem& problem, std::uint64_t seed) {
  auto data = core::BuildProblem(problem);
  if (!data) return "build: " + data.status().message();
  data->PlaceOn({DeviceKind::kCuda, 0});
  Plan plan;
  unsigned word = 0;
  const Status status =
      RunEmulated(*data, data->request(), data->plan_options(), SmallGpu(), seed, &plan, &word);
  if (!status.ok()) return "refused: " + status.message();
  if (word != 0) return "error word " + std::to_string(word);
  data->PlaceOn({});
  const oracle::Reference reference = oracle::Attention(data->request(), 0);
  const oracle::Error error = oracle::ErrorAgainst(reference, data->request());
  const cli::Tolerance tolerance =
      cli::ToleranceOf(plan, data->request().out.dtype, problem.data != core::DataForm::kExtreme);
  std::string failure = cli::Judge(error, plan, tolerance);
  if (failure.empty() && !data->CheckGuards().ok()) failure = data->CheckGuards().message();
  return failure;
}

// Gives the problem the dims and dtypes of an emulated tile, and what a GPU accepts.
void FitTo(const contract::TileShape& tile, std::uint64_t draw, core::Problem& p) {
  const auto any = [&](std::uint64_t k) {
    constexpr DType kTypes[] = {DType::kNVFP4, DType::kBF16, DType::kF16, DType::kE4M3,
                                DType::kE5M2};
    return kTypes[(draw >> k) % 5];
  };
  const bool mixed = tile.k_format == contract::kAnyFormat;
  p.head_dim_qk = tile.head_dim_qk;
  p.head_dim_vo = tile.head_dim_vo;
  p.k.dtype = mixed ? any(0) : static_cast<DType>(tile.k_format);
  p.v.dtype = mixed ? any(8) : static_cast<DType>(tile.v_format);
  for (core::SegmentSpec& segment : p.segments) {
    segment.k_dtype.reset();
    segment.v_dtype.reset();
  }
  if (mixed) {
    if (p.segments.size() < 2) p.segments.assign(2, {});
    p.segments.front().length = p.segments.front().owners.empty() ? 20 : p.segments.front().length;
    p.segments.front().k_dtype = any(16);
    p.segments.front().v_dtype = any(24);
    p.split = SplitMode::kOff;
  }
  if (tile.k_parts == 1) p.rope.reset();
  if (tile.k_parts > 1 && !p.rope) p.rope.emplace();
  if (p.rope) {
    p.rope->dim = std::min(p.rope->dim, p.head_dim_qk);
    if (p.data == core::DataForm::kExtreme) p.data = core::DataForm::kIid;
  }
  if (!p.rope && p.window_left < 0 && p.window_right < 0) p.q_positions = {};
  if (p.q_dtype == DType::kF32) p.q_dtype = DType::kF16;
  bool scaled_v = p.v.dtype == DType::kNVFP4;
  for (const auto& segment : p.segments) scaled_v |= segment.v_dtype == DType::kNVFP4;
  bool pages_of_four = p.page_size % 4 == 0;
  for (const auto& segment : p.segments) pages_of_four &= segment.page_size.value_or(4) % 4 == 0;
  if (!scaled_v || !pages_of_four || p.head_dim_vo % 64 != 0) {
    p.scale_layout = ScaleLayout::kLinear;
  }
  p.accuracy = Accuracy::kNormal;
  if (p.split != SplitMode::kFixed) p.fixed_split_rows = 0;
  p.path.clear();
}

// What `kvilt check --sweep --device cuda:0` will do on an H200: nothing is refused, and the
// kernels that have to be compiled stay a few hundred.
TEST(GpuSweep, IsLegalAndCompilesFewKernels) {
  const DeviceSpec spec = SpecFor("sm_90").value();
  std::set<std::string> kernels;
  for (std::int64_t i = 0; i < 2000; ++i) {
    const core::Problem problem = cli::GpuSweepProblem(1, i);
    const auto data = core::BuildProblemShape(problem, DeviceKind::kCuda);
    ASSERT_TRUE(data.ok()) << data.status().message() << core::ToText(problem);
    const auto plan = MakePlan(data->request(), spec, data->plan_options());
    ASSERT_TRUE(plan.ok()) << plan.status().message() << "\n" << core::ToText(problem);
    for (const contract::LaunchInfo& launch : plan::ViewPlanData(plan->data).launches) {
      kernels.insert(cuda::TileText(launch.tile));
    }
  }
  std::cout << kernels.size() << " kernels\n";
  EXPECT_LT(kernels.size(), 500u);
}

// KVILT_EMULATED_PROBLEM holds another problem to look at.
TEST(AttentionKernels, OneProblemInManyOrders) {
  const char* asked = std::getenv("KVILT_EMULATED_PROBLEM");
  const char* text = asked != nullptr ? asked
                                      : "verify b=2 q=3,2 kv=200,77 heads=4/2 d=64 kv_dtype=nvfp4 "
                                        "out=f32 window=60 alibi=bottom_right split=fixed:64";
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    EXPECT_EQ(Conforms(core::ParseProblem(text).value(), seed), "") << seed;
  }
}

// A sink may leave the keys a share that only subnormals hold, and lse is the sink's.
TEST(AttentionKernels, SinkFarAboveTheScores) {
  const char* text =
      "verify b=3 q=5,2,7 kv=72,260,127 heads=2/1 d=64 kv_dtype=nvfp4 k_global=0.00276 sink=0 "
      "out=f32 split=fixed:17 data=extreme";
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    EXPECT_EQ(Conforms(core::ParseProblem(text).value(), seed), "") << seed;
  }
}

// Caps far above the scores change them by less than f32 resolves, and must not drown them.
TEST(AttentionKernels, P60_LargeSoftCaps) {
  for (const char* cap : {"1000", "10000", "1e6", "1e12"}) {
    const std::string text =
        std::string("decode kv=300 heads=4/2 d=64 kv_dtype=nvfp4 out=f32 cap=") + cap;
    EXPECT_EQ(Conforms(core::ParseProblem(text).value(), 0), "") << cap;
  }
}

// A query that is NaN gives a row that is NaN, whether it is split or not: a merge that took the
// state for one that saw nothing would answer 0.
TEST(AttentionKernels, NaNStaysSeenThroughAMerge) {
  for (const char* split : {"off", "fixed:64"}) {
    core::ProblemData data =
        core::BuildProblem(
            core::ParseProblem(
                std::string("decode b=2 kv=300,300 heads=4/2 d=64 kv_dtype=nvfp4 out=f32 split=") +
                split)
                .value())
            .value();
    data.PlaceOn({DeviceKind::kCuda, 0});
    static_cast<std::uint16_t*>(data.request().q.data)[0] = 0x7FC0;  // Row 0, head 0.
    ASSERT_TRUE(RunEmulated(data, data.request(), data.plan_options(), SmallGpu()).ok());
    const TensorView& out = data.request().out;
    const auto* values = static_cast<const float*>(out.data);
    EXPECT_TRUE(std::isnan(values[0])) << split;
    EXPECT_TRUE(std::isnan(static_cast<const float*>(data.request().lse.data)[0])) << split;
    EXPECT_FALSE(std::isnan(values[out.stride[1]])) << split;  // Head 1.
  }
}

TEST(AttentionKernels, SweepOfEveryEmulatedTile) {
  const char* asked = std::getenv("KVILT_EMULATED_PROBLEMS");
  const int count = asked != nullptr ? std::atoi(asked) : 300;
  int ran = 0, unserved = 0;
  for (int i = 0; i < count; ++i) {
    core::Problem problem = cli::SweepProblem(17, i);
    const auto& tiles = EmulatedTiles();
    const std::uint64_t draw = static_cast<std::uint64_t>(i) * 0x9E3779B97F4A7C15u;
    FitTo(tiles[static_cast<std::size_t>(i) % tiles.size()].tile, draw, problem);
    const std::string failure = Conforms(problem, static_cast<std::uint64_t>(i));
    if (failure.starts_with("refused: tile")) {
      ++unserved;
      continue;
    }
    ++ran;
    EXPECT_EQ(failure, "") << i << ": " << core::ToText(problem);
  }
  std::cout << ran << " ran, " << unserved << " without an emulated tile\n";
  EXPECT_GT(ran, count / 2);
  // Those that were not served wanted other dims of a second launch; no tile may be left out.
  if (count >= 300) {
    for (const EmulatedTile& tile : EmulatedTiles()) {
      EXPECT_GT(tile.runs, 0) << cuda::TileText(tile.tile);
    }
  }
}

}  // namespace
}  // namespace kvilt::test
