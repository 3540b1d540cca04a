#include "src/plan/request_builder.h"

#include <numeric>

namespace kvilt::plan {
namespace {

std::vector<std::int64_t> Indptr(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int64_t> indptr(1, 0);
  for (std::int64_t length : lengths) indptr.push_back(indptr.back() + length);
  return indptr;
}

}  // namespace

RequestBuilder::RequestBuilder(const RequestOptions& options) {
  const std::vector<std::int64_t> indptr = Indptr(options.q_len);
  const std::int64_t rows = indptr.back();
  const std::int64_t row = RowElements(options.q, options.head_dim_qk);
  const std::int64_t q_bytes = rows * options.q_heads * row * StorageBytes(options.q);
  request.q = TensorView::Dense(Address(q_bytes), options.q, {rows, options.q_heads, row});
  if (options.q == DType::kNVFP4) {
    const std::int64_t blocks = options.head_dim_qk / kBlockElements;
    request.q_scales = TensorView::Dense(Address(rows * options.q_heads * blocks), DType::kE4M3,
                                         {rows, options.q_heads, blocks});
  }
  request.q_indptr = Array(indptr);
  request.out = TensorView::Dense(Address(rows * options.q_heads * options.head_dim_vo * 4),
                                  options.out, {rows, options.q_heads, options.head_dim_vo});
  if (options.lse) {
    request.lse = TensorView::Dense(Address(rows * options.q_heads * 4), DType::kF32,
                                    {rows, options.q_heads});
  }
  request.mask = options.mask;
  for (const SegmentOptions& segment : options.segments) {
    request.segments.push_back(MakeSegment(options, segment));
  }
}

void RequestBuilder::Place(DeviceKind kind) {
  for (TensorView* tensor : {&request.q, &request.q_scales, &request.out, &request.lse,
                             &request.mask_bits, &request.sink}) {
    tensor->device.kind = kind;
  }
  for (Segment& segment : request.segments) {
    std::visit(
        [&](auto& cache) {
          for (CacheSide* side : {&cache.k, &cache.v}) {
            side->data.device.kind = kind;
            side->scales.device.kind = kind;
          }
        },
        segment.kv);
  }
}

void* RequestBuilder::Address(std::int64_t bytes) {
  const std::uintptr_t at = next_;
  next_ += (static_cast<std::uintptr_t>(bytes) / 256 + 1) * 256;
  return reinterpret_cast<void*>(at);  // NOLINT(performance-no-int-to-ptr): never read.
}

IndexArray RequestBuilder::Array(std::vector<std::int64_t> values) {
  arrays_.push_back(std::make_unique<std::vector<std::int64_t>>(std::move(values)));
  return IndexArray(std::span<const std::int64_t>(*arrays_.back()));
}

CacheSide RequestBuilder::Side(DType dtype, bool paged, std::int64_t pages, std::int64_t tokens,
                               int kv_heads, int head_dim, KvLayout layout) {
  CacheSide side;
  side.layout = layout;
  const std::int64_t outer = layout == KvLayout::kNHD ? tokens : kv_heads;
  const std::int64_t inner = layout == KvLayout::kNHD ? kv_heads : tokens;
  const auto view = [&](DType type, std::int64_t row) {
    void* data = Address(pages * tokens * kv_heads * row * StorageBytes(type));
    return paged ? TensorView::Dense(data, type, {pages, outer, inner, row})
                 : TensorView::Dense(data, type, {outer, inner, row});
  };
  side.data = view(dtype, RowElements(dtype, head_dim));
  if (dtype == DType::kNVFP4) side.scales = view(DType::kE4M3, head_dim / kBlockElements);
  return side;
}

Segment RequestBuilder::MakeSegment(const RequestOptions& options, const SegmentOptions& segment) {
  Segment made;
  made.owners = segment.owners;
  if (segment.page_size == 0) {
    const std::vector<std::int64_t> indptr = Indptr(segment.kv_len);
    RaggedKv ragged;
    ragged.k = Side(segment.k, false, 1, indptr.back(), options.kv_heads, options.head_dim_qk,
                    segment.layout);
    ragged.v = Side(segment.v, false, 1, indptr.back(), options.kv_heads, options.head_dim_vo,
                    segment.layout);
    ragged.indptr = Array(indptr);
    made.kv = ragged;
    return made;
  }
  std::vector<std::int64_t> page_counts;
  for (std::int64_t length : segment.kv_len) {
    page_counts.push_back((length + segment.page_size - 1) / segment.page_size);
  }
  const std::vector<std::int64_t> indptr = Indptr(page_counts);
  std::vector<std::int64_t> ids(static_cast<std::size_t>(indptr.back()));
  std::iota(ids.begin(), ids.end(), 0);
  PagedKv paged;
  paged.k = Side(segment.k, true, indptr.back(), segment.page_size, options.kv_heads,
                 options.head_dim_qk, segment.layout);
  paged.v = Side(segment.v, true, indptr.back(), segment.page_size, options.kv_heads,
                 options.head_dim_vo, segment.layout);
  paged.table.indptr = Array(indptr);
  paged.table.indices = Array(std::move(ids));
  paged.table.kv_len = Array(segment.kv_len);
  made.kv = paged;
  return made;
}

RequestOptions Decode(std::vector<std::int64_t> kv_len, std::int64_t q_len) {
  RequestOptions options;
  options.q_len.assign(kv_len.size(), q_len);
  SegmentOptions segment;
  segment.kv_len = std::move(kv_len);
  options.segments.push_back(std::move(segment));
  return options;
}

}  // namespace kvilt::plan
