#include "src/core/problem_data.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "src/core/problem_values.h"

namespace kvilt::core {
namespace {

ProblemData Build(const std::string& text) {
  auto problem = ParseProblem(text);
  EXPECT_TRUE(problem.ok()) << problem.status().message();
  auto data = BuildProblem(*problem);
  EXPECT_TRUE(data.ok()) << text << "\n" << data.status().message();
  return std::move(data).value();
}

// The bytes of one key's row, found through the views alone.
std::string RowBytes(const Segment& segment, bool k, bool scales, std::int64_t table_row,
                     std::int64_t t, std::int64_t head) {
  const CacheSide& side = k ? segment.k() : segment.v();
  const TensorView& view = scales ? side.scales : side.data;
  const bool nhd = side.layout == KvLayout::kNHD;
  std::int64_t offset = 0;
  int token_axis = nhd ? 0 : 1;
  if (const PagedKv* paged = segment.paged()) {
    const PageTable& table = paged->table;
    const std::int64_t page_size = view.shape[nhd ? 1 : 2];
    const std::int64_t first =
        table.indptr.defined() ? table.indptr[table_row] : table_row * table.row_stride;
    offset = table.indices[first + t / page_size] * view.stride[0];
    t %= page_size;
    ++token_axis;
  } else {
    t += segment.ragged()->indptr[table_row];
  }
  if (nhd && segment.paged()) token_axis = 1;
  if (!nhd && segment.paged()) token_axis = 2;
  const int head_axis = segment.paged() ? 3 - token_axis : 1 - token_axis;
  offset += t * view.stride[token_axis] + head * view.stride[head_axis];
  const int size = StorageBytes(view.dtype);
  return {static_cast<const char*>(view.data) + offset * size,
          static_cast<std::size_t>(view.shape[view.rank - 1] * size)};
}

// All rows of request r as one string: data, and scales where they are linear.
std::string Content(const ProblemData& data, std::int64_t r) {
  std::string bytes;
  for (std::size_t s = 0; s < data.request().segments.size(); ++s) {
    const Segment& segment = data.request().segments[s];
    const std::int64_t length = SegmentLength(data.problem(), r, static_cast<std::int64_t>(s));
    for (std::int64_t t = 0; t < length; ++t) {
      for (std::int64_t head = 0; head < data.problem().kv_heads; ++head) {
        for (const bool k : {true, false}) {
          const std::int64_t row = segment.owners.empty() ? r : 0;
          bytes += RowBytes(segment, k, false, row, t, head);
          const CacheSide& side = k ? segment.k() : segment.v();
          if (side.scales.defined()) bytes += RowBytes(segment, k, true, row, t, head);
        }
      }
    }
  }
  return bytes;
}

TEST(ProblemValues, EncodesNearestEvenAndSaturates) {
  EXPECT_EQ(EncodeValue(DType::kE4M3, 448), 0x7Eu);
  EXPECT_EQ(EncodeValue(DType::kE4M3, 1e9), 0x7Eu);
  EXPECT_EQ(EncodeValue(DType::kE4M3, -1.0), 0xB8u);
  EXPECT_EQ(EncodeValue(DType::kE4M3, 0x1p-9), 0x01u);
  EXPECT_EQ(EncodeValue(DType::kE4M3, 0x1p-10), 0x00u);  // A tie, to even.
  EXPECT_EQ(EncodeValue(DType::kE4M3, 0x1.8p-9), 0x02u);
  EXPECT_EQ(EncodeValue(DType::kE4M3, 0x1.Fp0), 0x40u);  // Carries into the exponent.
  EXPECT_EQ(EncodeValue(DType::kE5M2, 57344), 0x7Bu);
  EXPECT_EQ(EncodeValue(DType::kF16, 1.0), 0x3C00u);
  EXPECT_EQ(EncodeValue(DType::kF16, 65519), 0x7BFFu);
  EXPECT_EQ(EncodeValue(DType::kBF16, 1.0), 0x3F80u);
  EXPECT_EQ(EncodeValue(DType::kBF16, 0x1.01p0), 0x3F80u);
  EXPECT_EQ(EncodeValue(DType::kBF16, 0x1.03p0), 0x3F82u);
  EXPECT_EQ(EncodeValue(DType::kF32, -2.0), 0xC0000000u);
}

// What a request holds does not depend on where it lies.
TEST(ProblemData, ContentIsIndependentOfPlacement) {
  const std::string rest = " kv_dtype=nvfp4 heads=4/2 d=64";
  const std::string reference = Content(Build("decode kv=77 ids=9" + rest), 0);
  EXPECT_EQ(reference.size(), 77u * 2 * 2 * (32 + 4));
  const std::vector<std::string> others = {
      "decode kv=5,77 ids=1,9",
      "decode kv=5,77 ids=1,9 page=3",
      "decode kv=5,77 ids=1,9 pages=ordered page=1",
      "decode kv=5,77 ids=1,9 layout=nhd",
      "decode kv=5,77 ids=1,9 k_layout=nhd pool=kv",
      "decode kv=5,77 ids=1,9 pool=kv pad=3/2 shift=1",
      "decode kv=5,77 ids=1,9 pool=kv k_shift=3",
      "decode kv=5,77 ids=1,9 pool=rows",
      "decode kv=5,77 ids=1,9 pool=rows pad=5/1 layout=nhd",
      "decode kv=5,77 ids=1,9 table=padded index=i64",
      "decode kv=5,77 ids=1,9 lengths=last_page_len",
      "decode kv=5,77 ids=1,9 cache=ragged",
      "decode kv=5,77 ids=1,9 cache=ragged layout=nhd pool=kv",
      "decode kv=5,77 ids=1,9 cache=ragged k_layout=nhd pool=kv pad=16/4",
      "verify kv=5,77 ids=1,9 mask=none out=f32",
  };
  for (const std::string& text : others) {
    EXPECT_EQ(Content(Build(text + rest), 1), reference) << text;
  }
  EXPECT_NE(Content(Build("decode kv=77 ids=8" + rest), 0), reference);
  EXPECT_NE(Content(Build("decode kv=77 ids=9 seed=2" + rest), 0), reference);
  EXPECT_EQ(Content(Build("decode kv=77 ids=9 segments=10,rest,3" + rest), 0), reference);
}

TEST(ProblemData, SharedSegmentsHoldThePrefixOfAll) {
  const std::string rest = " kv_dtype=e4m3 heads=2/2 d=16";
  const ProblemData shared = Build("decode kv=40,50,20 shared=17:0-1" + rest);
  const ProblemData flat = Build("decode kv=40,50,20 prefix=17" + rest);
  EXPECT_EQ(Content(shared, 0), Content(flat, 0));
  EXPECT_EQ(Content(shared, 1), Content(flat, 1));
  EXPECT_EQ(Content(flat, 0).substr(0, 100), Content(flat, 2).substr(0, 100));
  EXPECT_NE(Content(shared, 0), Content(shared, 1).substr(0, Content(shared, 0).size()));
}

TEST(ProblemData, WhatNobodySeesIsPoison) {
  const ProblemData data = Build("decode kv=100 page=16 window=20 heads=1/1 d=16 kv_dtype=e4m3");
  const Segment& segment = data.request().segments[0];
  const std::string poison(16, '\xFF');
  // Keys 79 to 99 are seen, so pages of keys 0 to 63 are not.
  for (std::int64_t t : {0, 63}) EXPECT_EQ(RowBytes(segment, true, false, 0, t, 0), poison);
  for (std::int64_t t : {64, 79, 99}) EXPECT_NE(RowBytes(segment, true, false, 0, t, 0), poison);
  const ProblemData keys =
      Build("decode kv=100 page=16 window=20 heads=1/1 d=16 kv_dtype=e4m3 poison=keys");
  EXPECT_EQ(RowBytes(keys.request().segments[0], true, false, 0, 78, 0), poison);
  EXPECT_NE(RowBytes(keys.request().segments[0], true, false, 0, 79, 0), poison);
}

TEST(ProblemData, RepoisoningChangesOnlyWhatIsNotContent) {
  ProblemData data = Build("decode kv=21 page=8 kv_dtype=nvfp4 heads=2/2 d=32 pad=4/1");
  const std::string before = Content(data, 0);
  const TensorView& view = data.request().segments[0].k().data;
  const auto* bytes = static_cast<const std::uint8_t*>(view.data);
  EXPECT_EQ(bytes[16], 0xFF);  // Padding behind the first row.
  data.PoisonCaches(0x5A);
  EXPECT_EQ(bytes[16], 0x5A);
  EXPECT_EQ(Content(data, 0), before);
}

TEST(ProblemData, GuardsSeeAWriteOutsideTheRows) {
  ProblemData data = Build("decode b=2 kv=9 heads=2/1 d=16 out=f32 out_pad=4/8 extra_rows=1");
  EXPECT_TRUE(data.CheckGuards().ok());
  const TensorView& out = data.request().out;
  auto* values = static_cast<float*>(out.data);
  for (std::int64_t r = 0; r < 2; ++r) {
    for (std::int64_t h = 0; h < 2; ++h) {
      std::memset(values + r * out.stride[0] + h * out.stride[1], 0, 16 * sizeof(float));
    }
  }
  EXPECT_TRUE(data.CheckGuards().ok()) << "rows belong to the caller";
  for (std::int64_t outside : {std::int64_t{16}, std::int64_t{-1}, 2 * out.stride[0]}) {
    data.PoisonOutputs();
    values[outside] = 0;
    EXPECT_FALSE(data.CheckGuards().ok()) << outside;
  }
  data.PoisonOutputs();
  const std::span<std::byte> workspace = data.Workspace(100);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(workspace.data()) % 256, 0u);
  EXPECT_TRUE(data.CheckGuards().ok());
  workspace.data()[100] = std::byte{0};
  EXPECT_EQ(data.CheckGuards().message(), "workspace: byte 100 was written, expected 0 to 99");
}

TEST(ProblemData, MaskBitsBeginAtTheirOffset) {
  const ProblemData data = Build("prefill b=2 q=23 kv=31 mask=custom mask_indptr heads=1/1 d=16");
  const AttentionRequest& request = data.request();
  const std::int64_t bytes = (23 * 31 + 7) / 8;
  EXPECT_EQ(request.mask_indptr[0], 3);
  EXPECT_EQ(request.mask_indptr[1], bytes + 3);
  EXPECT_EQ(request.mask_bits.shape[0], 2 * bytes + 3);
}

TEST(ProblemData, RefusesWhatHasNoPlaceInMemory) {
  const auto refuse = [](const std::string& text) {
    const auto problem = ParseProblem(text);
    EXPECT_TRUE(problem.ok());
    return BuildProblem(*problem).status().message();
  };
  EXPECT_NE(refuse("decode kv_dtype=nvfp4 scale_layout=interleaved4 page=6").find("page=6"),
            std::string::npos);
  EXPECT_NE(refuse("decode kv_dtype=nvfp4 d=72").find("multiple of 16"), std::string::npos);
  EXPECT_NE(refuse("decode kv=4000000000000000000").find("kv: expected at most"),
            std::string::npos);
}

TEST(ProblemData, KvBytesCountEachKeyOnce) {
  EXPECT_EQ(Build("decode kv=1024 kv_dtype=nvfp4").kv_bytes(), 1024 * 8 * 2 * (64 + 8));
  EXPECT_EQ(Build("decode b=4 kv=100 shared=60:0-3 heads=2/1 d=32").kv_bytes(),
            (60 + 4 * 40) * 2 * 64);
}

TEST(ProblemData, AShapeIsTheSameRequestWithoutMemory) {
  const Problem problem =
      ParseProblem("decode b=2 kv=100,70 heads=4/2 d=64 kv_dtype=nvfp4 rope=half sink=1").value();
  const ProblemData built = BuildProblem(problem).value();
  const ProblemData shape = BuildProblemShape(problem).value();
  const auto same = [](const TensorView& a, const TensorView& b) {
    return a.dtype == b.dtype && a.rank == b.rank &&
           std::equal(a.shape, a.shape + a.rank, b.shape) &&
           std::equal(a.stride, a.stride + a.rank, b.stride);
  };
  const AttentionRequest& a = built.request();
  const AttentionRequest& b = shape.request();
  EXPECT_TRUE(same(a.q, b.q));
  EXPECT_TRUE(same(a.out, b.out));
  EXPECT_TRUE(same(a.lse, b.lse));
  const PagedKv& pages = *a.segments[0].paged();
  const PagedKv& shape_pages = *b.segments[0].paged();
  EXPECT_TRUE(same(pages.k.data, shape_pages.k.data));
  EXPECT_TRUE(same(pages.v.scales, shape_pages.v.scales));
  ASSERT_EQ(pages.table.indices.size, shape_pages.table.indices.size);
  for (std::int64_t i = 0; i < pages.table.indices.size; ++i) {
    EXPECT_EQ(pages.table.indices[i], shape_pages.table.indices[i]);
  }
}

TEST(ProblemData, AShapeMayBeLargerThanTheMachine) {
  const auto shape =
      BuildProblemShape(ParseProblem("decode b=64 kv=1048576 heads=32/8 d=128").value());
  ASSERT_TRUE(shape.ok()) << shape.status().message();
  EXPECT_EQ(shape->kv_bytes(), std::int64_t{64} * 1048576 * 8 * 2 * 256);  // 275 GB
}

}  // namespace
}  // namespace kvilt::core
