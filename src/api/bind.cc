#include "src/api/bind.h"

#include <cmath>

#include "src/api/bind_rows.h"
#include "src/api/rope.h"
#include "src/core/check.h"

namespace kvilt::api {
namespace {

using contract::i32;
using contract::i64;
using contract::u8;

static_assert(static_cast<int>(contract::Format::kF32) == static_cast<int>(DType::kF32));
static_assert(static_cast<int>(contract::Format::kBF16) == static_cast<int>(DType::kBF16));
static_assert(static_cast<int>(contract::Format::kF16) == static_cast<int>(DType::kF16));
static_assert(static_cast<int>(contract::Format::kE4M3) == static_cast<int>(DType::kE4M3));
static_assert(static_cast<int>(contract::Format::kE5M2) == static_cast<int>(DType::kE5M2));
static_assert(static_cast<int>(contract::Format::kNVFP4) == static_cast<int>(DType::kNVFP4));
static_assert(static_cast<int>(contract::Mask::kNone) == static_cast<int>(MaskMode::kNone));
static_assert(static_cast<int>(contract::Mask::kCausal) == static_cast<int>(MaskMode::kCausal));
static_assert(static_cast<int>(contract::Mask::kCustom) == static_cast<int>(MaskMode::kCustom));
static_assert(static_cast<int>(contract::Mask::kTree) == static_cast<int>(MaskMode::kTree));

const u8* Bytes(const TensorView& tensor) { return static_cast<const u8*>(tensor.data); }
const float* Floats(const TensorView& tensor) { return static_cast<const float*>(tensor.data); }
i32 IsI64(const IndexArray& array) { return array.dtype == DType::kI64 ? 1 : 0; }

// Where the axes of a side stand; page is absent (-1) in a ragged one.
struct Axes {
  int page;
  int token;
  int head;
  int row;
};
Axes AxesOf(const CacheSide& side, bool paged) {
  const int first = paged ? 1 : 0;
  const bool nhd = side.layout == KvLayout::kNHD;
  return {first - 1, nhd ? first : first + 1, nhd ? first + 1 : first, first + 2};
}

contract::SideParams BindSide(const CacheSide& side, bool paged) {
  const Axes axes = AxesOf(side, paged);
  contract::SideParams out;
  out.data = Bytes(side.data);
  out.format = static_cast<i32>(side.data.dtype);
  const i64 row = side.data.shape[axes.row];
  out.head_dim = static_cast<i32>(side.data.dtype == DType::kNVFP4 ? row * 2 : row);
  out.page_stride = paged ? StrideBytes(side.data, axes.page) : 0;
  out.token_stride = StrideBytes(side.data, axes.token);
  out.head_stride = StrideBytes(side.data, axes.head);
  if (side.scales.defined()) {
    out.scales = Bytes(side.scales);
    out.interleaved4 = side.scale_layout == ScaleLayout::kInterleaved4 ? 1 : 0;
    out.scale_page_stride = paged ? StrideBytes(side.scales, axes.page) : 0;
    out.scale_token_stride = StrideBytes(side.scales, axes.token);
    out.scale_head_stride = StrideBytes(side.scales, axes.head);
  }
  const DecodeScale& global = side.global;
  if (global.array != nullptr) {
    out.global = global.array;
    out.global_per_head = global.array_size > 1 ? 1 : 0;
  } else {
    out.global_value = global.value;
  }
  return out;
}

contract::RopeParams BindRope(const Rope& rope, int head_dim_qk,
                              std::span<const double> frequencies) {
  contract::RopeParams out;
  out.enabled = 1;
  out.interleaved = rope.pairing == RopePairing::kInterleaved ? 1 : 0;
  out.rotary_dim = RotaryElements(rope, head_dim_qk);
  KVILT_CHECK(frequencies.size() == static_cast<std::size_t>(out.rotary_dim / 2));
  out.frequencies = frequencies.data();
  if (rope.key_positions.defined()) {
    out.key_positions = rope.key_positions.data;
    out.key_position_is_i64 = IsI64(rope.key_positions);
  }
  return out;
}

void BindQueryAndOutputs(const AttentionRequest& request, contract::AttentionParams& out) {
  out.q = Bytes(request.q);
  out.q_format = static_cast<i32>(request.q.dtype);
  out.q_row_stride = StrideBytes(request.q, 0);
  out.q_head_stride = StrideBytes(request.q, 1);
  if (request.q_scales.defined()) {
    out.q_scales = Bytes(request.q_scales);
    out.q_scale_row_stride = StrideBytes(request.q_scales, 0);
    out.q_scale_head_stride = StrideBytes(request.q_scales, 1);
  }
  out.out = static_cast<u8*>(request.out.data);
  out.out_format = static_cast<i32>(request.out.dtype);
  out.out_row_stride = StrideBytes(request.out, 0);
  out.out_head_stride = StrideBytes(request.out, 1);
  if (request.lse.defined()) {
    out.lse = static_cast<float*>(request.lse.data);
    out.lse_row_stride = request.lse.stride[0];
    out.lse_head_stride = request.lse.stride[1];
  }
  out.lse_base_two = request.lse_base == LseBase::kTwo ? 1 : 0;
}

}  // namespace

contract::SegmentParams BindSegment(const Segment& segment) {
  contract::SegmentParams out;
  out.shared = segment.owners.empty() ? 0 : 1;
  const PagedKv* const paged = segment.paged();
  out.k = BindSide(segment.k(), paged != nullptr);
  out.v = BindSide(segment.v(), paged != nullptr);
  const TensorView& k = segment.k().data;
  const Axes axes = AxesOf(segment.k(), paged != nullptr);
  out.page_size = k.shape[axes.token];
  if (paged == nullptr) {
    const IndexArray& indptr = segment.ragged()->indptr;
    out.table = static_cast<i32>(contract::TableKind::kRagged);
    out.indptr = indptr.data;
    out.indptr_is_i64 = IsI64(indptr);
    out.pages = 1;
    return out;
  }
  const PageTable& table = paged->table;
  const bool csr = table.indptr.defined();
  out.table = static_cast<i32>(csr ? contract::TableKind::kCsr : contract::TableKind::kPadded);
  out.indices = table.indices.data;
  out.index_is_i64 = IsI64(table.indices);
  out.indptr = table.indptr.data;
  out.indptr_is_i64 = IsI64(table.indptr);
  out.row_stride = csr ? 0 : table.row_stride;
  out.pages = k.shape[axes.page];
  return out;
}

contract::AttentionParams BindRequest(const AttentionRequest& request, int head_dim_qk,
                                      std::span<contract::SegmentParams> segments,
                                      std::span<const double> rope_frequencies) {
  KVILT_CHECK(segments.size() == request.segments.size());
  contract::AttentionParams out;
  BindQueryAndOutputs(request, out);
  const float sm_scale =
      request.sm_scale ? *request.sm_scale : static_cast<float>(1.0 / std::sqrt(head_dim_qk));
  out.logit_scale = double{sm_scale} * double{request.q_scale};
  out.soft_cap = request.logits_soft_cap;
  if (request.alibi) {
    out.alibi_slopes = Floats(request.alibi->slopes);
    out.alibi_stride = request.alibi->slopes.stride[0];
    out.alibi_row_index = request.alibi->origin == AlibiOrigin::kRowIndex ? 1 : 0;
  }
  out.bias_before_cap = request.bias_before_cap ? 1 : 0;
  out.visibility = {static_cast<i32>(request.mask), request.window_left, request.window_right};
  if (request.mask_bits.defined()) out.mask_bits = Bytes(request.mask_bits);
  if (request.q_positions.defined()) {
    out.q_positions = request.q_positions.data;
    out.q_position_is_i64 = IsI64(request.q_positions);
  }
  if (request.sink.defined()) {
    out.sink = Floats(request.sink);
    out.sink_stride = request.sink.stride[0];
  }
  if (request.rope) out.rope = BindRope(*request.rope, head_dim_qk, rope_frequencies);
  for (std::size_t s = 0; s < segments.size(); ++s) segments[s] = BindSegment(request.segments[s]);
  out.segments = segments.data();
  out.segment_count = static_cast<i32>(segments.size());
  return out;
}

}  // namespace kvilt::api
