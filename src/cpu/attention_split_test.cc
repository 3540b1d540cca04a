// RunAttention: what must not change a row's result: splits, page size and order, batch, slot, head
// ranges, threads, the caller's floating-point mode. And that a warm run allocates nothing.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>

#include "src/cpu/attention_bodies.h"
#include "src/cpu/attention_fixture.h"
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace {
std::atomic<long> allocations{0};
}  // namespace

// Counts every allocation of this program.
void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* p = std::malloc(bytes)) return p;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  ++allocations;
  const std::size_t unit = static_cast<std::size_t>(alignment);
  if (void* p = std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit)) return p;
  throw std::bad_alloc();
}
// g++ sees free() beside a new that it has not replaced yet.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

namespace kvilt::cpu {
namespace {

using contract::Format;
using contract::Mask;

// A request whose rows are compared: 3 queries, 700 keys.
AttentionOptions Compared(const BodyUnderTest& body) {
  AttentionOptions options;
  options.path = body.path;
  options.accuracy = body.accuracy;
  options.q_len = {3};
  options.mask = Mask::kCausal;
  options.q_heads = 6;
  options.segments = {OneSegment(Format::kNVFP4, Format::kBF16, {700})};
  options.sigma = 2.0f;
  return options;
}

// The rows of `q_row .. + 3` as bytes of out and lse.
std::vector<float> Rows(const AttentionFixture& fixture, i64 first_row) {
  std::vector<float> values;
  for (i64 row = first_row; row < first_row + 3; ++row) {
    for (int h = 0; h < 6; ++h) {
      for (int d = 0; d < 64; ++d) values.push_back(fixture.out(row, h, d));
      values.push_back(fixture.lse(row, h));
    }
  }
  return values;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<float> RunRows(const AttentionOptions& options, const BodyUnderTest& body,
                           i64 first_row = 0, int threads = 1) {
  AttentionFixture fixture(options);
  EXPECT_TRUE(fixture.Run(body.target, threads).ok());
  return Rows(fixture, first_row);
}

TEST(AttentionSplit, SplitAgainstUnsplit) {
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    for (const float sigma : {0.3f, 0.9f, 5.6f}) {
      AttentionOptions options = Compared(body);
      options.sigma = sigma;
      const std::vector<float> whole = RunRows(options, body);
      for (const i64 split : {16, 64, 100, 256}) {
        options.split_rows = split;
        AttentionFixture fixture(options);
        ASSERT_GT(fixture.lists().blocks[0].splits, 1);
        ASSERT_TRUE(fixture.Run(body.target).ok());
        const std::vector<float> parts = Rows(fixture, 0);
        double error = 0.0;
        double size = 0.0;
        for (std::size_t i = 0; i < whole.size(); ++i) {
          error += std::pow(double{parts[i]} - double{whole[i]}, 2);
          size += std::pow(double{whole[i]}, 2);
        }
        EXPECT_LE(std::sqrt(error / size), 1e-5) << body << " split " << split;
      }
    }
  }
}

TEST(AttentionSplit, P42_P71_bits_do_not_depend_on_batch_pages_or_threads) {
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    AttentionOptions options = Compared(body);
    options.split_rows = 128;
    const std::vector<float> alone = RunRows(options, body);

    AttentionOptions pages = options;
    pages.reverse_pages = true;
    EXPECT_TRUE(SameBits(alone, RunRows(pages, body))) << body;
    for (const i64 size : {1, 64, 128}) {
      pages.segments[0].page_size = size;
      EXPECT_TRUE(SameBits(alone, RunRows(pages, body, 0, 2))) << body << " page size " << size;
    }
    pages.segments[0].table = contract::TableKind::kRagged;
    pages.segments[0].k.nhd = true;
    EXPECT_TRUE(SameBits(alone, RunRows(pages, body))) << body << " ragged";

    AttentionOptions batch = options;
    batch.q_len = {1, 5, 3};
    batch.request_ids = {7, 9, 0};
    batch.segments[0].lengths = {3000, 17, 700};
    batch.heads_per_item = 1;
    EXPECT_TRUE(SameBits(alone, RunRows(batch, body, 6, 2))) << body << " slot 2";
    batch.block_rows = 2;
    EXPECT_TRUE(SameBits(alone, RunRows(batch, body, 6, 2))) << body << " other row blocks";
  }
}

TEST(AttentionSplit, P43_bits_with_windows_caps_and_masks) {
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    AttentionOptions options = Compared(body);
    options.split_rows = 64;
    options.window_left = 301;
    options.soft_cap = 50.0f;
    options.mask = Mask::kCustom;
    options.mask_bit = [](i64, i64 i, i64 j) { return (i + j) % 5 != 0; };
    const std::vector<float> alone = RunRows(options, body);
    options.q_len = {2, 3};
    options.request_ids = {4, 0};
    options.segments[0].lengths = {90, 700};
    options.segments[0].page_size = 1;
    EXPECT_TRUE(SameBits(alone, RunRows(options, body, 2, 2))) << body;
  }
}

TEST(AttentionSplit, CascadeAgainstSeparateReads) {
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    AttentionOptions options = Compared(body);
    options.q_len = {3, 1};
    options.segments[0].shared = true;
    options.segments[0].lengths = {640, 640};
    options.segments.push_back(OneSegment(Format::kE4M3, Format::kE4M3, {60, 5}));
    options.split_rows = 640;
    const std::vector<float> separate = RunRows(options, body);
    options.cascade = true;
    EXPECT_TRUE(SameBits(separate, RunRows(options, body))) << body;
  }
}

#if defined(__SSE2__)
TEST(AttentionSplit, CallersFlushModeNeitherMattersNorChanges) {
  const unsigned former = _mm_getcsr();
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    AttentionOptions options = Compared(body);
    options.split_rows = 128;
    const std::vector<float> expected = RunRows(options, body);
    AttentionFixture fixture(options);
    const unsigned hostile = former | 0x8040 | 0x6000;  // FTZ, DAZ, rounding to zero.
    _mm_setcsr(hostile);
    const Status status = fixture.Run(body.target, 2);
    const unsigned after = _mm_getcsr();
    _mm_setcsr(former);
    EXPECT_TRUE(status.ok());
    EXPECT_EQ(after & ~0x3Fu, hostile & ~0x3Fu);
    EXPECT_TRUE(SameBits(expected, Rows(fixture, 0))) << body;
  }
}
#endif

TEST(AttentionSplit, WarmRunsAllocateNothing) {
  for (const BodyUnderTest& body : BodiesUnderTest()) {
    AttentionOptions options = Compared(body);
    options.split_rows = 128;
    options.rotary_dim = Rotates(body) ? 32 : 0;
    AttentionFixture fixture(options);
    WorkerPool pool(2);
    fixture.Prepare();
    ASSERT_TRUE(fixture.RunPrepared(body.target, pool).ok());
    const long before = allocations.load();
    ASSERT_TRUE(fixture.RunPrepared(body.target, pool).ok());
    EXPECT_EQ(allocations.load(), before) << body;
  }
}

TEST(AttentionSplit, PathsAndTargetsThatDoNotGoTogether) {
  AttentionOptions options;
  options.path = contract::PathId::kCpuAvx512Bf16;
  options.segments = {OneSegment(Format::kF16, Format::kBF16, {10})};
  AttentionFixture fixture(options);
  EXPECT_EQ(fixture.Run(SimdTarget::kScalar).code(), StatusCode::kUnsupported);
  EXPECT_EQ(fixture.Run(SimdTarget::kAvx512Bf16).code(), StatusCode::kUnsupported);
}

TEST(AttentionSplit, TargetsAreListedNarrowestFirst) {
  ASSERT_FALSE(SupportedTargets().empty());
  for (std::size_t i = 1; i < SupportedTargets().size(); ++i) {
    EXPECT_LT(SupportedTargets()[i - 1], SupportedTargets()[i]);
  }
  for (const SimdTarget target : SupportedTargets()) EXPECT_TRUE(Supports(target));
}

}  // namespace
}  // namespace kvilt::cpu
