#include "src/api/bind.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "src/contract/side_address.h"

namespace kvilt::api {
namespace {

std::array<std::byte, 64> memory;  // Only its addresses matter.

TensorView View(DType dtype, std::initializer_list<std::int64_t> shape,
                std::initializer_list<std::int64_t> stride) {
  TensorView view = TensorView::Dense(memory.data(), dtype, shape);
  int dim = 0;
  for (const std::int64_t step : stride) view.stride[dim++] = step;
  return view;
}

AttentionRequest OneSegment(PagedKv paged) {
  AttentionRequest request;
  request.q = View(DType::kBF16, {3, 8, 64}, {1000, 100, 1});
  request.out = View(DType::kF32, {3, 8, 64}, {2000, 200, 1});
  request.segments.push_back({paged, {}});
  request.mask = MaskMode::kCausal;
  return request;
}

TEST(BindSegment, PagedNvfp4OfBothLayouts) {
  PagedKv paged;
  // [pages, page_size, heads, row] of bytes.
  paged.k.data = View(DType::kNVFP4, {7, 16, 2, 32}, {5000, 300, 40, 1});
  paged.k.scales = View(DType::kE4M3, {7, 16, 2, 4}, {700, 30, 8, 1});
  // [pages, heads, page_size, row] of two bytes.
  paged.v.data = View(DType::kF16, {7, 2, 16, 64}, {9000, 4000, 70, 1});
  paged.v.layout = KvLayout::kHND;
  const std::vector<std::int32_t> indptr = {0, 1};
  const std::vector<std::int64_t> indices = {3};
  paged.table.indptr = std::span(indptr);
  paged.table.indices = std::span(indices);
  const contract::SegmentParams s = BindSegment({paged, {}});
  EXPECT_EQ(s.k.head_dim, 64);
  EXPECT_EQ(s.k.page_stride, 5000);
  EXPECT_EQ(s.k.token_stride, 300);
  EXPECT_EQ(s.k.head_stride, 40);
  EXPECT_EQ(s.k.scale_page_stride, 700);
  EXPECT_EQ(s.k.scale_token_stride, 30);
  EXPECT_EQ(s.k.scale_head_stride, 8);
  EXPECT_EQ(s.v.head_dim, 64);
  EXPECT_EQ(s.v.page_stride, 18000);
  EXPECT_EQ(s.v.token_stride, 140);
  EXPECT_EQ(s.v.head_stride, 8000);
  EXPECT_EQ(s.v.scales, nullptr);
  EXPECT_EQ(s.page_size, 16);
  EXPECT_EQ(s.pages, 7);
  EXPECT_EQ(s.table, static_cast<int>(contract::TableKind::kCsr));
  EXPECT_EQ(s.index_is_i64, 1);
  EXPECT_EQ(s.indptr_is_i64, 0);
  EXPECT_EQ(s.shared, 0);
}

TEST(BindSegment, RaggedAndSharedAndPadded) {
  RaggedKv ragged;
  ragged.k.data = View(DType::kE4M3, {2, 99, 64}, {9000, 64, 1});  // [heads, total, row]
  ragged.k.layout = KvLayout::kHND;
  ragged.v.data = View(DType::kE4M3, {99, 2, 64}, {128, 64, 1});
  const contract::SegmentParams r = BindSegment({ragged, {0, 2}});
  EXPECT_EQ(r.table, static_cast<int>(contract::TableKind::kRagged));
  EXPECT_EQ(r.shared, 1);
  EXPECT_EQ(r.page_size, 99);
  EXPECT_EQ(r.pages, 1);
  EXPECT_EQ(r.k.token_stride, 64);
  EXPECT_EQ(r.k.head_stride, 9000);
  EXPECT_EQ(r.v.token_stride, 128);
  EXPECT_EQ(r.v.head_stride, 64);

  PagedKv padded;
  padded.k.data = View(DType::kBF16, {7, 16, 2, 64}, {2048, 128, 64, 1});
  padded.v.data = padded.k.data;
  padded.table.row_stride = 5;
  const contract::SegmentParams p = BindSegment({padded, {}});
  EXPECT_EQ(p.table, static_cast<int>(contract::TableKind::kPadded));
  EXPECT_EQ(p.row_stride, 5);
  EXPECT_EQ(p.indptr, nullptr);
}

// P15, P16: no global, a global of 1, a value and an array are one thing to the kernel.
TEST(BindSegment, P16_globals) {
  PagedKv paged;
  paged.k.data = View(DType::kE4M3, {7, 16, 2, 64}, {2048, 128, 64, 1});
  paged.v.data = paged.k.data;
  const float per_head[2] = {0.5f, 0.25f};
  paged.v.global.array = per_head;
  paged.v.global.array_size = 2;
  Segment segment{paged, {}};
  contract::SegmentParams s = BindSegment(segment);
  for (const int head : {0, 1}) EXPECT_EQ(contract::GlobalOf(s.k, head), 1.0f);
  EXPECT_EQ(s.v.global, per_head);
  EXPECT_EQ(s.v.global_per_head, 1);
  for (const int head : {0, 1}) EXPECT_EQ(contract::GlobalOf(s.v, head), per_head[head]);
  std::get<PagedKv>(segment.kv).k.global.value = 0.125f;
  std::get<PagedKv>(segment.kv).v.global.array_size = 1;
  s = BindSegment(segment);
  for (const int head : {0, 1}) {
    EXPECT_EQ(contract::GlobalOf(s.k, head), 0.125f);
    EXPECT_EQ(contract::GlobalOf(s.v, head), 0.5f);
  }
  // A value travels in the params: a kernel reads no host memory, and follows no moved request.
  EXPECT_EQ(s.k.global, nullptr);
}

TEST(BindRequest, StridesAndDefaults) {
  PagedKv paged;
  paged.k.data = View(DType::kBF16, {7, 16, 2, 64}, {2048, 128, 64, 1});
  paged.v.data = paged.k.data;
  const AttentionRequest request = OneSegment(paged);
  std::array<contract::SegmentParams, 1> segments;
  const contract::AttentionParams p = BindRequest(request, 64, segments, {});
  EXPECT_EQ(p.q_row_stride, 2000);
  EXPECT_EQ(p.q_head_stride, 200);
  EXPECT_EQ(p.out_row_stride, 8000);
  EXPECT_EQ(p.out_head_stride, 800);
  EXPECT_EQ(p.lse, nullptr);
  EXPECT_EQ(p.q_scales, nullptr);
  EXPECT_EQ(p.logit_scale, 0.125f);
  EXPECT_EQ(p.visibility.window_left, -1);
  EXPECT_EQ(p.visibility.mask, static_cast<int>(contract::Mask::kCausal));
  EXPECT_EQ(p.alibi_slopes, nullptr);
  EXPECT_EQ(p.sink, nullptr);
  EXPECT_EQ(p.rope.enabled, 0);
  EXPECT_EQ(p.segments, segments.data());
  EXPECT_EQ(p.segment_count, 1);
}

TEST(BindRequest, EveryOption) {
  PagedKv paged;
  paged.k.data = View(DType::kBF16, {7, 16, 2, 64}, {2048, 128, 64, 1});
  paged.v.data = paged.k.data;
  AttentionRequest request = OneSegment(paged);
  request.lse = View(DType::kF32, {3, 8}, {50, 3});
  request.lse_base = LseBase::kTwo;
  request.sm_scale = 0.5f;
  request.q_scale = 3.0f;
  request.logits_soft_cap = 30.0f;
  request.window_left = 10;
  request.window_right = 0;
  request.alibi = Alibi{View(DType::kF32, {8}, {4}), AlibiOrigin::kRowIndex};
  request.bias_before_cap = true;
  request.sink = View(DType::kF32, {8}, {2});
  request.mask_bits = View(DType::kU8, {9}, {1});
  const std::vector<std::int64_t> positions = {5, 6, 7};
  request.q_positions = std::span(positions);
  request.rope.emplace();
  request.rope->pairing = RopePairing::kInterleaved;
  request.rope->rotary_dim = 4;
  request.rope->key_positions = std::span(positions);
  const std::array<double, 2> frequencies = {1.0, 0.5};
  std::array<contract::SegmentParams, 1> segments;
  const contract::AttentionParams p = BindRequest(request, 64, segments, frequencies);
  EXPECT_EQ(p.lse_row_stride, 50);  // Elements.
  EXPECT_EQ(p.lse_head_stride, 3);
  EXPECT_EQ(p.lse_base_two, 1);
  EXPECT_EQ(p.logit_scale, 1.5f);
  EXPECT_EQ(p.soft_cap, 30.0f);
  EXPECT_EQ(p.visibility.window_left, 10);
  EXPECT_EQ(p.visibility.window_right, 0);
  EXPECT_EQ(p.alibi_stride, 4);
  EXPECT_EQ(p.alibi_row_index, 1);
  EXPECT_EQ(p.bias_before_cap, 1);
  EXPECT_EQ(p.sink_stride, 2);
  EXPECT_NE(p.mask_bits, nullptr);
  EXPECT_EQ(p.q_positions, positions.data());
  EXPECT_EQ(p.q_position_is_i64, 1);
  EXPECT_EQ(p.rope.enabled, 1);
  EXPECT_EQ(p.rope.interleaved, 1);
  EXPECT_EQ(p.rope.rotary_dim, 4);
  EXPECT_EQ(p.rope.key_positions, positions.data());
  EXPECT_EQ(p.rope.frequencies, frequencies.data());
}

}  // namespace
}  // namespace kvilt::api
