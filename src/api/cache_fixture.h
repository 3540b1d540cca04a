// For tests of the writers: a poisoned cache in owned memory with its Segment, and rows to append.
#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "kvilt/attention.h"

namespace kvilt::api::test {

struct CacheShape {
  DType k_dtype = DType::kNVFP4;
  DType v_dtype = DType::kNVFP4;
  std::int64_t pages = 6;
  std::int64_t page_size = 4;
  std::int64_t heads = 2;
  std::int64_t head_dim_k = 64;
  std::int64_t head_dim_v = 64;
  KvLayout k_layout = KvLayout::kNHD;
  KvLayout v_layout = KvLayout::kHND;
  bool interleaved_v = false;
  bool ragged = false;  // pages * page_size rows.
};

// Not movable: the segment points into it.
class CacheMemory {
 public:
  explicit CacheMemory(const CacheShape& cache_shape) : shape(cache_shape) {
    CacheSide k = Side(shape.k_dtype, shape.head_dim_k, shape.k_layout, k_data, k_scales);
    CacheSide v = Side(shape.v_dtype, shape.head_dim_v, shape.v_layout, v_data, v_scales);
    if (shape.interleaved_v) {
      v.scale_layout = ScaleLayout::kInterleaved4;
      v.scale_row_blocks = static_cast<int>(shape.head_dim_v / 16);
    }
    if (shape.ragged) {
      segment.kv = RaggedKv{k, v, {}};
    } else {
      segment.kv = PagedKv{k, v, {}};
    }
  }
  CacheMemory(const CacheMemory&) = delete;
  CacheMemory& operator=(const CacheMemory&) = delete;

  CacheSide& k() {
    return std::visit([](auto& cache) -> CacheSide& { return cache.k; }, segment.kv);
  }
  CacheSide& v() {
    return std::visit([](auto& cache) -> CacheSide& { return cache.v; }, segment.kv);
  }

  // A CSR table over owned arrays.
  void SetTable(std::vector<std::int64_t> new_indptr, std::vector<std::int32_t> new_indices,
                std::vector<std::int64_t> new_kv_len) {
    indptr = std::move(new_indptr);
    indices = std::move(new_indices);
    kv_len = std::move(new_kv_len);
    PageTable& table = std::get<PagedKv>(segment.kv).table;
    table = {};
    table.indptr = indptr;
    table.indices = indices;
    table.kv_len = kv_len;
  }

  // The values of an array to the front of a tensor's memory, where a bad request keeps them.
  template <class T>
  static void WriteInto(std::vector<std::uint8_t>& bytes, const std::vector<T>& values) {
    std::memcpy(bytes.data(), values.data(), values.size() * sizeof(T));
  }
  std::vector<std::vector<std::uint8_t>> Snapshot() const {
    return {k_data, k_scales, v_data, v_scales};
  }

  const CacheShape shape;
  std::vector<std::uint8_t> k_data, k_scales, v_data, v_scales;
  std::vector<std::int64_t> indptr, kv_len;
  std::vector<std::int32_t> indices;
  Segment segment;

 private:
  TensorView View(std::vector<std::uint8_t>& bytes, DType dtype, std::int64_t row,
                  KvLayout layout) const {
    const std::int64_t rows = shape.pages * shape.page_size * shape.heads;
    bytes.assign(static_cast<std::size_t>(rows * row * StorageBytes(dtype)), 0xFF);
    const bool nhd = layout == KvLayout::kNHD;
    const std::int64_t tokens = shape.ragged ? shape.pages * shape.page_size : shape.page_size;
    const std::int64_t outer = nhd ? tokens : shape.heads;
    const std::int64_t inner = nhd ? shape.heads : tokens;
    if (shape.ragged) return TensorView::Dense(bytes.data(), dtype, {outer, inner, row});
    return TensorView::Dense(bytes.data(), dtype, {shape.pages, outer, inner, row});
  }

  CacheSide Side(DType dtype, std::int64_t head_dim, KvLayout layout,
                 std::vector<std::uint8_t>& data, std::vector<std::uint8_t>& scales) const {
    CacheSide side;
    side.layout = layout;
    side.data = View(data, dtype, RowElements(dtype, head_dim), layout);
    if (dtype == DType::kNVFP4) side.scales = View(scales, DType::kE4M3, head_dim / 16, layout);
    return side;
  }
};

// f32 rows [tokens, heads, head_dim] with log-normal token magnitudes.
struct RowMemory {
  RowMemory(std::int64_t tokens, std::int64_t heads, std::int64_t head_dim, unsigned seed)
      : values(static_cast<std::size_t>(tokens * heads * head_dim)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    const std::size_t token_elements = static_cast<std::size_t>(heads * head_dim);
    float magnitude = 1;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i % token_elements == 0) magnitude = std::exp(normal(random));
      values[i] = normal(random) * magnitude;
    }
    view = TensorView::Dense(values.data(), DType::kF32, {tokens, heads, head_dim});
  }
  RowMemory(const RowMemory&) = delete;
  RowMemory& operator=(const RowMemory&) = delete;

  std::vector<float> values;
  TensorView view;
};

// sqrt(sum (got - want)^2 / sum want^2)
inline double RelativeL2(const std::vector<float>& got, const std::vector<float>& want) {
  double error = 0;
  double norm = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    error += std::pow(static_cast<double>(got[i]) - want[i], 2);
    norm += std::pow(static_cast<double>(want[i]), 2);
  }
  return std::sqrt(error / norm);
}

}  // namespace kvilt::api::test
