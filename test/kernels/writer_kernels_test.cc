// The kernels that write and read caches on the emulator, byte by byte against src/cpu.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "src/core/random.h"
#include "src/cpu/append.h"
#include "src/cpu/dequantize.h"
#include "src/cpu/side_fixture.h"
#include "src/emulator/emulator.h"
#include "src/kernels/append.cuh"
#include "src/kernels/dequantize.cuh"

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

constexpr Format kRowFormats[] = {Format::kF32, Format::kBF16, Format::kF16};
constexpr Format kCacheFormats[] = {Format::kBF16, Format::kF16, Format::kE4M3, Format::kE5M2,
                                    Format::kNVFP4};

// Slots as a caller has them in device memory, i32 where they fit if asked.
class DeviceSlots {
 public:
  DeviceSlots(const std::vector<i64>& slots, bool is_i64, i64 capacity)
      : wide_(slots), narrow_(slots.begin(), slots.end()), is_i64_(is_i64), capacity_(capacity) {}
  contract::SlotArray Params() const {
    const void* const array = is_i64_ ? static_cast<const void*>(wide_.data()) : narrow_.data();
    return {array, is_i64_, capacity_};
  }

 private:
  std::vector<i64> wide_;
  std::vector<i32> narrow_;
  bool is_i64_;
  i64 capacity_;
};

std::string Name(Format k, Format v, Format source) {
  return "k " + std::to_string(static_cast<int>(k)) + " v " + std::to_string(static_cast<int>(v)) +
         " source " + std::to_string(static_cast<int>(source));
}

// Dense rows [tokens, heads, head_dim], each element of so many bytes, `skew` bytes off alignment.
struct Rows {
  Rows(Format row_format, i64 tokens, i64 kv_heads, i64 head_dim, i64 skew_bytes)
      : format(row_format),
        element(row_format == Format::kF32 ? 4 : 2),
        row(head_dim * element),
        heads(kv_heads),
        skew(skew_bytes),
        bytes(static_cast<std::size_t>(skew + tokens * heads * row), u8{0x5A}) {}

  contract::RowParams Params() {
    return {bytes.data() + skew, static_cast<i32>(format), heads * row, row};
  }
  u8* Element(i64 i) { return bytes.data() + skew + i * element; }
  i64 count() const { return (static_cast<i64>(bytes.size()) - skew) / element; }

  Format format;
  i64 element, row, heads, skew;
  std::vector<u8> bytes;
};

// Bits of an f32: noise of a block's own magnitude, any bits at all, ties, subnormals, specials.
u32 SomeBits(core::Random& random, i64 block) {
  constexpr float kSpecials[] = {0.0f,   0.25f,    0.75f,     1.25f,    1.75f,
                                 2.5f,   3.5f,     5.0f,      6.0f,     448.0f,
                                 464.0f, 57344.0f, 61440.0f,  65504.0f, 65520.0f,
                                 1e-40f, 1.2e-38f, 3.389e38f, 1e30f,    0.0009765625f};
  const u32 sign = static_cast<u32>(random.Next()) & 0x80000000u;
  switch (core::HashOf(block, 77) % 6) {
    case 0:  // Any bits: NaN with payloads, infinities, all magnitudes.
      return static_cast<u32>(random.Next());
    case 1:  // Specials.
      return sign | contract::FloatBits(kSpecials[random.Below(20)]);
    case 2:  // One NaN or infinity among ordinary values.
      if (random.OneIn(20)) return sign | 0x7F800000u | (random.OneIn(2) ? 0x0001234u : 0u);
      break;
    case 3:  // All zeros, of either sign.
      return sign;
    default:
      break;
  }
  const int exponent = static_cast<int>(core::HashOf(block, 78) % 60) - 40;
  const float noise = static_cast<float>(random.Below(4096)) / 2048.0f;
  return sign | contract::FloatBits(std::ldexp(noise, exponent));
}

void FillRows(Rows& rows, std::uint64_t seed) {
  core::Random random(seed);
  for (i64 i = 0; i < rows.count(); ++i) {
    const u32 bits = SomeBits(random, i / 16 + static_cast<i64>(seed % 1000));
    u16 half = static_cast<u16>(bits >> 16);
    // f16 specials too: a conversion keeps them; raw bits add signalling NaN.
    if (rows.format == Format::kF16 && !random.OneIn(8)) {
      half = contract::EncodeF16(contract::BitsFloat(bits));
    }
    if (rows.element == 4) {
      std::memcpy(rows.Element(i), &bits, 4);
    } else {
      std::memcpy(rows.Element(i), &half, 2);
    }
  }
}

std::vector<i64> Health(const HealthCounters& h) {
  return {h.nan, h.infinite, h.saturated, h.flushed_blocks, h.skipped};
}

struct AppendCase {
  SideShape k, v;
  Format source = Format::kF32;
  std::vector<float> k_globals = {1.0f}, v_globals = {1.0f};
  std::vector<i64> slots;
  bool four_over_six = false;
  i64 skew = 0;
  bool wide_slots = true;
  int grid = 3;
  std::uint64_t seed = 1;
};

// Fills a pair of caches on the CPU and a pair through the kernel, and compares all bytes, the
// poisoned ones between rows included. Slots that the CPU must not see are taken for skipped there.
void CheckAppend(const AppendCase& c) {
  const auto tokens = static_cast<i64>(c.slots.size());
  const i64 capacity = c.k.pages * c.k.page_size;
  Rows k_rows(c.source, tokens, c.k.heads, c.k.head_dim, c.skew);
  Rows v_rows(c.source, tokens, c.k.heads, c.v.head_dim, c.skew);
  FillRows(k_rows, c.seed);
  FillRows(v_rows, c.seed + 1);
  SideFixture k_cpu(c.k, c.k_globals), v_cpu(c.v, c.v_globals);
  SideFixture k_gpu = k_cpu, v_gpu = v_cpu;

  i64 bad = 0;
  std::vector<i64> trusted = c.slots;
  for (i64& slot : trusted) {
    if (slot >= -1 && slot < capacity) continue;
    slot = -1;
    ++bad;
  }
  contract::AppendArgs args;
  args.params = {k_rows.Params(), v_rows.Params(), k_cpu.Params(), v_cpu.Params(), tokens,
                 c.k.heads,       c.k.page_size,   trusted.data(), c.four_over_six};
  cpu::WorkerPool pool(1);
  cpu::AppendHealth expected = cpu::Append(args.params, pool);
  expected.k.skipped -= bad;
  expected.v.skipped -= bad;

  std::vector<u64> k_health(contract::kHealthCounters), v_health(contract::kHealthCounters);
  u32 error = 0;
  args.params.k = k_gpu.Params();
  args.params.v = v_gpu.Params();
  args.params.slots = nullptr;
  const DeviceSlots slots(c.slots, c.wide_slots, capacity);
  args.slots = slots.Params();
  args.k_health = k_health.data();
  args.v_health = v_health.data();
  args.error = &error;
  emulator::Launch({c.grid, contract::kWriterThreads, 0, c.seed}, [&] { kernels::Append(args); });

  EXPECT_TRUE(k_gpu.bytes == k_cpu.bytes);
  EXPECT_TRUE(v_gpu.bytes == v_cpu.bytes);
  EXPECT_EQ(std::vector<i64>(k_health.begin(), k_health.end()), Health(expected.k));
  EXPECT_EQ(std::vector<i64>(v_health.begin(), v_health.end()), Health(expected.v));
  EXPECT_EQ(error, bad > 0 ? static_cast<u32>(contract::WriterError::kBadSlot) : 0u);
}

TEST(AppendKernel, EveryPairOfFormats) {
  std::uint64_t seed = 1;
  for (const Format k : kCacheFormats) {
    for (const Format v : kCacheFormats) {
      for (const Format source : kRowFormats) {
        ++seed;
        SCOPED_TRACE(Name(k, v, source));
        AppendCase c;
        c.k = {k, 3, 4, 2, 64, seed % 2 == 0, seed % 3 == 0, seed % 4 < 2, 0};
        c.v = {v, 3, 4, 2, 128, seed % 2 == 1, seed % 5 == 0, seed % 4 > 1, 0};
        c.source = source;
        c.slots = {7, 0, -1, 11, 3, 2, -1, 9, 5};
        if (seed % 3 != 0) c.k_globals = {0.37f};
        if (seed % 3 != 1) c.v_globals = {1.7e-3f, 260.0f};
        c.four_over_six = seed % 2 == 0;
        c.grid = static_cast<int>(seed % 4) + 1;
        c.seed = seed;
        c.wide_slots = seed % 2 == 0;
        CheckAppend(c);
      }
    }
  }
}

TEST(AppendKernel, ManyBlocksOfEachWriter) {
  for (const Format format : kCacheFormats) {
    for (const bool four_over_six : {false, true}) {
      SCOPED_TRACE(Name(format, format, Format::kF32));
      AppendCase c;
      c.k = c.v = {format, 16, 16, 4, 128, false, false, four_over_six, 0};
      for (i64 slot = 0; slot < 256; ++slot) c.slots.push_back(255 - slot);
      c.k_globals = {1.0f, 3e-3f, 0.11f, 47.0f};
      c.v_globals = {1e-30f, 1e30f, 1.0f, 1e-5f};
      c.four_over_six = four_over_six;
      c.seed = 40 + static_cast<std::uint64_t>(format);
      CheckAppend(c);
    }
  }
}

TEST(AppendKernel, RowsOffAlignmentAndDimsThatAreNoBlocks) {
  for (const Format format : kCacheFormats) {
    for (const Format source : kRowFormats) {
      SCOPED_TRACE(Name(format, format, source));
      AppendCase c;
      c.k = {format, 2, 4, 3, format == Format::kNVFP4 ? 48 : 40, false, true, false, 3};
      c.v = {format, 2, 4, 3, format == Format::kNVFP4 ? 16 : 23, true, true, false, 1};
      c.source = source;
      c.slots = {1, 6, 4, 7};
      c.skew = 4;
      c.grid = 1;
      CheckAppend(c);
    }
  }
}

TEST(AppendKernel, SlotsOutsideTheCacheAreLeftOut) {
  AppendCase c;
  c.k = {Format::kNVFP4, 3, 4, 2, 64, false, false, true, 0};
  c.v = {Format::kE4M3, 3, 4, 2, 64, false, false, false, 0};
  c.slots = {12, 0, -1, -2, i64{1} << 40, 11, std::numeric_limits<i64>::min()};
  CheckAppend(c);
  c.slots = {};
  CheckAppend(c);
}

// Any bytes at all in the cache, NaN scales and codes included.
void CheckDequantize(const SideShape& k, const SideShape& v, Format out, i64 skew,
                     const std::vector<float>& globals, std::uint64_t seed) {
  SideFixture k_side(k, globals), v_side(v, globals);
  core::Random random(seed);
  for (u8& byte : k_side.bytes) byte = static_cast<u8>(random.Next());
  for (u8& byte : v_side.bytes) byte = static_cast<u8>(random.Next());
  const std::vector<i64> slots = {0, 11, 5, 6, 7, 5, 1};
  const auto tokens = static_cast<i64>(slots.size());
  Rows k_cpu(out, tokens, k.heads, k.head_dim, skew), v_cpu(out, tokens, k.heads, v.head_dim, skew);
  Rows k_gpu = k_cpu, v_gpu = v_cpu;
  contract::DequantizeArgs args;
  args.params = {k_cpu.Params(), v_cpu.Params(), k_side.Params(), v_side.Params(),
                 tokens,         k.heads,        k.page_size,     slots.data()};
  const DeviceSlots device_slots(slots, seed % 2 == 0, k.pages * k.page_size);
  args.slots = device_slots.Params();
  cpu::WorkerPool pool(1);
  cpu::Dequantize(args.params, pool);
  args.params.slots = nullptr;
  args.params.k_rows = k_gpu.Params();
  args.params.v_rows = v_gpu.Params();
  const int grid = static_cast<int>(seed % 4) + 1;
  emulator::Launch({grid, contract::kWriterThreads, 0, seed}, [&] { kernels::Dequantize(args); });
  EXPECT_TRUE(k_gpu.bytes == k_cpu.bytes);
  EXPECT_TRUE(v_gpu.bytes == v_cpu.bytes);
}

TEST(DequantizeKernel, EveryFormat) {
  std::uint64_t seed = 1;
  for (const Format k : kCacheFormats) {
    for (const Format v : kCacheFormats) {
      for (const Format out : kRowFormats) {
        ++seed;
        SCOPED_TRACE(Name(k, v, out));
        const std::vector<float> globals =
            seed % 3 == 0 ? std::vector<float>{1.0f} : std::vector<float>{0.0123f, 777.0f};
        CheckDequantize({k, 3, 4, 2, 64, false, false, seed % 2 == 0, 0},
                        {v, 3, 4, 2, 128, true, true, seed % 2 == 1, 0}, out, 0, globals, seed);
        CheckDequantize({k, 3, 4, 2, 48, false, true, false, 3}, {v, 3, 4, 2, 16, true, true}, out,
                        4, globals, seed);
      }
    }
  }
}

TEST(DequantizeKernel, OneSideAlone) {
  const SideShape shape{Format::kNVFP4, 3, 4, 2, 64};
  SideFixture side(shape, {2.0f});
  const std::vector<i64> slots = {3, -1, 12};  // Outside: zeros.
  Rows v(Format::kF32, 3, 2, 64, 0);
  contract::DequantizeArgs args;
  args.params = {{}, v.Params(), side.Params(), side.Params(), 3, 2, 4, nullptr};
  const DeviceSlots device_slots(slots, true, 12);
  args.slots = device_slots.Params();
  emulator::Launch({2, contract::kWriterThreads, 0, 1}, [&] { kernels::Dequantize(args); });
  float first = 0;
  std::memcpy(&first, v.Element(0), 4);
  EXPECT_NE(first, 0.0f);
  for (i64 i = 128; i < 384; ++i) {
    std::memcpy(&first, v.Element(i), 4);
    EXPECT_EQ(contract::FloatBits(first), 0u);
  }
}

}  // namespace
}  // namespace kvilt
