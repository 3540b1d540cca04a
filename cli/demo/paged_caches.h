// Keys and values written into paged caches of chosen formats, through the public API alone:
// PagePool for the pages, AppendKv for the bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvilt/page_pool.h"
#include "kvilt/request.h"
#include "src/core/aligned_memory.h"

namespace kvilt::cli::demo {

// One paged cache, K and V each in its own dtype, HND.
struct CacheShape {
  std::int64_t pages = 0;
  std::int64_t page_size = 16;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim_k = 0;
  std::int64_t head_dim_v = 0;
  DType k_dtype = DType::kBF16;
  DType v_dtype = DType::kBF16;
  float k_global = 1;
  float v_global = 1;
};

// Owned memory of one cache. Movable.
class PagedCache {
 public:
  // Errors: kResourceExhausted.
  static Result<PagedCache> Create(const CacheShape& shape);

  const CacheShape& shape() const { return shape_; }
  // The cache through a table, which must outlive the segment's use.
  Segment View(const PagePool::Table& table) const;
  double data_bytes_per_token() const;  // K and V of all KV heads.
  double scale_bytes_per_token() const;

 private:
  CacheShape shape_;
  core::AlignedMemory memory_[4];  // K data, K scales, V data, V scales.
};

// Of a bf16 or f32 [tokens, heads, dim] tensor.
float LargestMagnitude(const TensorView& values);

// Rows [begin, begin + count) of a [tokens, heads, dim] view.
TensorView Tokens(const TensorView& values, std::int64_t begin, std::int64_t count);

// How a context is kept: its first tokens in one format, the rest in another.
struct FormatPart {
  std::int64_t tokens = -1;  // -1 = the rest.
  DType k_dtype = DType::kBF16;
  DType v_dtype = DType::kBF16;
};
struct Format {
  std::string name;
  std::string note;
  std::vector<FormatPart> parts;
  bool four_over_six = false;
};

// A context in a format: a cache and a page table for each part. Movable; the segments borrow.
struct StoredContext {
  std::vector<PagedCache> caches;
  std::vector<PagePool::Table> tables;
  HealthCounters health;
  std::int64_t tokens = 0;

  std::vector<Segment> Segments() const;
  double data_bytes_per_token() const;  // Mean over the tokens.
  double scale_bytes_per_token() const;
};

// Stores `k` and `v` ([tokens, kv_heads, dim], host) `repeats` times one after another.
Result<StoredContext> Store(const Device& device, const Format& format, const TensorView& k,
                            const TensorView& v, std::int64_t page_size, std::int64_t repeats = 1);

}  // namespace kvilt::cli::demo
