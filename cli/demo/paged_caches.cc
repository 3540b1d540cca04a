#include "cli/demo/paged_caches.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "cli/kv_global.h"
#include "kvilt/attention.h"
#include "src/core/check.h"

namespace kvilt::cli::demo {
namespace {

float LoadBf16OrF32(const TensorView& view, std::int64_t offset) {
  if (view.dtype == DType::kF32) return static_cast<const float*>(view.data)[offset];
  KVILT_CHECK(view.dtype == DType::kBF16);
  const std::uint16_t bits = static_cast<const std::uint16_t*>(view.data)[offset];
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::int64_t DataBytes(const CacheShape& s, DType dtype, std::int64_t head_dim) {
  return s.pages * s.page_size * s.kv_heads * RowElements(dtype, head_dim) * StorageBytes(dtype);
}
std::int64_t ScaleBytes(const CacheShape& s, DType dtype, std::int64_t head_dim) {
  if (dtype != DType::kNVFP4) return 0;
  return s.pages * s.page_size * s.kv_heads * head_dim / kBlockElements;
}

CacheSide Side(const CacheShape& s, DType dtype, std::int64_t head_dim, float global,
               const core::AlignedMemory& data, const core::AlignedMemory& scales) {
  CacheSide side;
  side.layout = KvLayout::kHND;
  side.global.value = global;
  side.data = TensorView::Dense(data.data(), dtype,
                                {s.pages, s.kv_heads, s.page_size, RowElements(dtype, head_dim)});
  if (dtype == DType::kNVFP4) {
    side.scales = TensorView::Dense(scales.data(), DType::kE4M3,
                                    {s.pages, s.kv_heads, s.page_size, head_dim / kBlockElements});
  }
  return side;
}

// Appends to the sequence of `pool` that holds a part, `repeats` times the same rows.
Status Fill(const Device& device, PagePool& pool, SequenceId sequence, const PagedCache& cache,
            const TensorView& k, const TensorView& v, std::int64_t repeats, bool four_over_six,
            HealthCounters& health) {
  HealthCounters k_health, v_health;
  const std::array<std::int64_t, 2> indptr = {0, k.shape[0]};
  for (std::int64_t i = 0; i < repeats; ++i) {
    std::vector<PageCopy> copies;  // Stays empty: nothing is shared.
    KVILT_RETURN_IF_ERROR(pool.Append({&sequence, 1}, {&indptr[1], 1}, &copies));
    const Result<PagePool::Table> table = pool.MakeTable({&sequence, 1});
    if (!table.ok()) return table.status();
    AppendRequest append;
    append.k = k;
    append.v = v;
    append.cache = cache.View(*table);
    append.token_indptr = std::span<const std::int64_t>(indptr);
    append.four_over_six = four_over_six;
    KVILT_RETURN_IF_ERROR(AppendKv(device, append, &k_health, &v_health));
  }
  for (const HealthCounters& side : {k_health, v_health}) {
    health.nan += side.nan;
    health.infinite += side.infinite;
    health.saturated += side.saturated;
    health.flushed_blocks += side.flushed_blocks;
  }
  return Status::Ok();
}

}  // namespace

Result<PagedCache> PagedCache::Create(const CacheShape& shape) {
  PagedCache cache;
  cache.shape_ = shape;
  const std::int64_t bytes[4] = {DataBytes(shape, shape.k_dtype, shape.head_dim_k),
                                 ScaleBytes(shape, shape.k_dtype, shape.head_dim_k),
                                 DataBytes(shape, shape.v_dtype, shape.head_dim_v),
                                 ScaleBytes(shape, shape.v_dtype, shape.head_dim_v)};
  for (int i = 0; i < 4; ++i) {
    cache.memory_[i] = core::AlignedMemory(static_cast<std::size_t>(bytes[i]));
    if (cache.memory_[i].data() == nullptr) {
      return Status::Exhausted("cache", "no memory for " + std::to_string(bytes[i]) + " bytes");
    }
    cache.memory_[i].Fill(0xFF);  // NaN in every format: what is not written must not count.
  }
  return cache;
}

Segment PagedCache::View(const PagePool::Table& table) const {
  PagedKv paged;
  paged.k =
      Side(shape_, shape_.k_dtype, shape_.head_dim_k, shape_.k_global, memory_[0], memory_[1]);
  paged.v =
      Side(shape_, shape_.v_dtype, shape_.head_dim_v, shape_.v_global, memory_[2], memory_[3]);
  paged.table = table.view();
  Segment segment;
  segment.kv = paged;
  return segment;
}

double PagedCache::data_bytes_per_token() const {
  return static_cast<double>(DataBytes(shape_, shape_.k_dtype, shape_.head_dim_k) +
                             DataBytes(shape_, shape_.v_dtype, shape_.head_dim_v)) /
         static_cast<double>(shape_.pages * shape_.page_size);
}

double PagedCache::scale_bytes_per_token() const {
  return static_cast<double>(ScaleBytes(shape_, shape_.k_dtype, shape_.head_dim_k) +
                             ScaleBytes(shape_, shape_.v_dtype, shape_.head_dim_v)) /
         static_cast<double>(shape_.pages * shape_.page_size);
}

float LargestMagnitude(const TensorView& values) {
  float largest = 0;
  for (std::int64_t t = 0; t < values.shape[0]; ++t) {
    for (std::int64_t h = 0; h < values.shape[1]; ++h) {
      const std::int64_t row = t * values.stride[0] + h * values.stride[1];
      for (std::int64_t d = 0; d < values.shape[2]; ++d) {
        largest = std::max(largest, std::fabs(LoadBf16OrF32(values, row + d)));
      }
    }
  }
  return largest;
}

TensorView Tokens(const TensorView& values, std::int64_t begin, std::int64_t count) {
  TensorView part = values;
  part.data =
      static_cast<std::byte*>(values.data) + begin * values.stride[0] * StorageBytes(values.dtype);
  part.shape[0] = count;
  return part;
}

std::vector<Segment> StoredContext::Segments() const {
  std::vector<Segment> segments;
  for (std::size_t i = 0; i < caches.size(); ++i) segments.push_back(caches[i].View(tables[i]));
  return segments;
}

double StoredContext::data_bytes_per_token() const {
  double bytes = 0;
  for (std::size_t i = 0; i < caches.size(); ++i) {
    bytes += caches[i].data_bytes_per_token() * static_cast<double>(tables[i].kv_len[0]);
  }
  return bytes / static_cast<double>(tokens);
}

double StoredContext::scale_bytes_per_token() const {
  double bytes = 0;
  for (std::size_t i = 0; i < caches.size(); ++i) {
    bytes += caches[i].scale_bytes_per_token() * static_cast<double>(tables[i].kv_len[0]);
  }
  return bytes / static_cast<double>(tokens);
}

Result<StoredContext> Store(const Device& device, const Format& format, const TensorView& k,
                            const TensorView& v, std::int64_t page_size, std::int64_t repeats) {
  StoredContext context;
  std::int64_t done = 0;
  for (const FormatPart& part : format.parts) {
    const std::int64_t left = k.shape[0] - done;
    const std::int64_t count = part.tokens < 0 ? left : std::min(part.tokens, left);
    const TensorView part_k = Tokens(k, done, count), part_v = Tokens(v, done, count);
    CacheShape shape;
    shape.page_size = page_size;
    shape.pages = (count * repeats + page_size - 1) / page_size;
    shape.kv_heads = k.shape[1];
    shape.head_dim_k = k.shape[2];
    shape.head_dim_v = v.shape[2];
    shape.k_dtype = part.k_dtype;
    shape.v_dtype = part.v_dtype;
    shape.k_global = GlobalFor(part.k_dtype, LargestMagnitude(part_k));
    shape.v_global = GlobalFor(part.v_dtype, LargestMagnitude(part_v));
    Result<PagedCache> cache = PagedCache::Create(shape);
    if (!cache.ok()) return cache.status();
    Result<PagePool> pool = PagePool::Create(shape.pages, page_size);
    if (!pool.ok()) return pool.status();
    const Result<SequenceId> sequence = pool->Create();
    if (!sequence.ok()) return sequence.status();
    KVILT_RETURN_IF_ERROR(Fill(device, *pool, *sequence, *cache, part_k, part_v, repeats,
                               format.four_over_six, context.health));
    Result<PagePool::Table> table = pool->MakeTable({&*sequence, 1});
    if (!table.ok()) return table.status();
    context.caches.push_back(std::move(cache).value());
    context.tables.push_back(std::move(table).value());
    done += count;
    context.tokens += count * repeats;
  }
  return context;
}

}  // namespace kvilt::cli::demo
