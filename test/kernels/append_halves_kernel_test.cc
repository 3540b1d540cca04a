// The kernel append on the emulator: every bit pattern of the 16-bit sources against src/cpu, and
// what its arguments may leave out.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "src/cpu/append.h"
#include "src/cpu/side_fixture.h"
#include "src/emulator/emulator.h"
#include "src/kernels/append.cuh"

namespace kvilt {
namespace {

using contract::Format;
using contract::i32;
using contract::i64;
using contract::u16;
using contract::u32;
using contract::u64;
using contract::u8;
using cpu::test::SideFixture;
using cpu::test::SideShape;

constexpr i64 kHeadDim = 512;
constexpr i64 kTokens = 65536 / kHeadDim;

contract::RowParams RowsOf(std::vector<u16>& halves, Format format) {
  return {reinterpret_cast<u8*>(halves.data()), static_cast<i32>(format), 2 * kHeadDim,
          2 * kHeadDim};
}

std::vector<u64> Health(const HealthCounters& h) {
  return {static_cast<u64>(h.nan), static_cast<u64>(h.infinite), static_cast<u64>(h.saturated),
          static_cast<u64>(h.flushed_blocks), static_cast<u64>(h.skipped)};
}

// K gets the patterns in their order, so that a block is of one magnitude; V in one that mixes.
// The kernel has the global by value.
void CheckHalves(Format source, Format cache, float global, bool four_over_six) {
  std::vector<u16> in_order(65536), mixed(65536);
  std::iota(in_order.begin(), in_order.end(), u16{0});
  for (u32 i = 0; i < 65536; ++i) mixed[i] = static_cast<u16>(i * 40503u);
  std::vector<i64> slots(kTokens);
  std::iota(slots.begin(), slots.end(), 0);
  const SideShape shape{cache, 1, kTokens, 1, static_cast<i32>(kHeadDim)};
  SideFixture k_cpu(shape, {global}), v_cpu(shape, {global});
  SideFixture k_gpu = k_cpu, v_gpu = v_cpu;
  contract::AppendArgs args;
  args.params = {RowsOf(in_order, source),
                 RowsOf(mixed, source),
                 k_cpu.Params(),
                 v_cpu.Params(),
                 kTokens,
                 1,
                 kTokens,
                 slots.data(),
                 four_over_six};
  cpu::WorkerPool pool(1);
  const cpu::AppendHealth expected = cpu::Append(args.params, pool);

  std::vector<u64> k_health(contract::kHealthCounters, 5);  // Added to.
  std::vector<u64> v_health(contract::kHealthCounters, 0);
  args.params.k = k_gpu.Params();
  args.params.v = v_gpu.Params();
  for (contract::SideParams* side : {&args.params.k, &args.params.v}) {
    side->global = nullptr;
    side->global_value = global;
  }
  args.params.slots = nullptr;
  args.slots = {slots.data(), 1, kTokens};
  args.k_health = k_health.data();
  args.v_health = v_health.data();
  emulator::Launch({4, contract::kWriterThreads, 0, 3}, [&] { kernels::Append(args); });
  EXPECT_TRUE(k_gpu.bytes == k_cpu.bytes);
  EXPECT_TRUE(v_gpu.bytes == v_cpu.bytes);
  for (u64& count : k_health) count -= 5;
  EXPECT_EQ(k_health, Health(expected.k));
  EXPECT_EQ(v_health, Health(expected.v));
}

TEST(AppendKernel, EveryHalf) {
  for (Format source : {Format::kBF16, Format::kF16}) {
    for (Format cache :
         {Format::kBF16, Format::kF16, Format::kE4M3, Format::kE5M2, Format::kNVFP4}) {
      for (float global : {1.0f, 0.0371f, 0x1p-70f, 0x1p20f}) {
        for (bool four_over_six : {false, true}) {
          SCOPED_TRACE(static_cast<int>(source) * 10 + static_cast<int>(cache));
          CheckHalves(source, cache, global, four_over_six);
        }
      }
    }
  }
}

TEST(AppendKernel, AnEarlierErrorStaysAndCountersMayBeLeftOut) {
  std::vector<u16> halves(kHeadDim, 0x7FC0);  // NaN
  const i64 slots[] = {1};                    // Past the only one.
  SideFixture k({Format::kE4M3, 1, 1, 1, kHeadDim}, {1.0f});
  SideFixture v = k;
  const std::vector<u8> before = k.bytes;
  const contract::RowParams rows = RowsOf(halves, Format::kBF16);
  contract::AppendArgs args;
  args.params = {rows, rows, k.Params(), v.Params(), 1, 1, 1, nullptr, 0};
  args.slots = {slots, 1, 1};
  const auto launch = [&] {
    emulator::Launch({2, contract::kWriterThreads, 0, 1}, [&] { kernels::Append(args); });
  };
  launch();  // Neither an error word nor counters.
  u32 error = 9;
  args.error = &error;
  launch();
  EXPECT_EQ(error, 9u);
  EXPECT_EQ(k.bytes, before);
  EXPECT_EQ(v.bytes, before);
}

}  // namespace
}  // namespace kvilt
