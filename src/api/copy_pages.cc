#include <fmt/format.h>

#include <cstring>

#include "kvilt/page_pool.h"
#include "src/api/bind.h"
#include "src/api/check_apart.h"
#include "src/api/check_stream.h"
#include "src/api/device_impl.h"
#include "src/api/no_memory.h"
#include "src/contract/append_args.h"
#include "src/contract/attention_params.h"
#include "src/core/check.h"
#include "src/plan/validate_segment.h"

namespace kvilt {
namespace {

using contract::i64;
using contract::u8;

// Below this, waking the workers costs more than the copies.
constexpr i64 kParallelBytes = 256 * 1024;

using Rows = contract::CopiedTensor;

int CollectRows(const CacheSide& side, const contract::SideParams& params, Rows* out) {
  int count = 0;
  out[count++] = {const_cast<u8*>(params.data),
                  params.page_stride,
                  params.token_stride,
                  params.head_stride,
                  side.data.shape[side.data.rank - 1] * StorageBytes(side.data.dtype),
                  1};
  if (params.scales != nullptr) {
    // interleaved4 spreads the scales of a token over the four rows of its group.
    out[count++] = {const_cast<u8*>(params.scales),
                    params.scale_page_stride,
                    params.scale_token_stride,
                    params.scale_head_stride,
                    side.scales.shape[side.scales.rank - 1],
                    params.interleaved4 != 0 ? 4 : 1};
  }
  return count;
}

void CopyHead(const Rows& rows, std::span<const PageCopy> copies, i64 head) {
  u8* const base = rows.data + head * rows.head_stride;
  for (const PageCopy& copy : copies) {
    const u8* from = base + copy.from * rows.page_stride;
    u8* to = base + copy.to * rows.page_stride;
    const i64 count = contract::RoundUp<i64>(copy.rows, rows.granule);
    for (i64 row = 0; row < count; ++row) {
      std::memmove(to, from, static_cast<std::size_t>(rows.row_bytes));
      from += rows.token_stride;
      to += rows.token_stride;
    }
  }
}

Status CheckCopies(std::span<const PageCopy> copies, i64 pages, i64 page_size) {
  for (std::size_t i = 0; i < copies.size(); ++i) {
    const PageCopy& copy = copies[i];
    const auto page = [&](std::string_view field, i64 id) {
      if (id >= 0 && id < pages) return Status();
      return Status::Invalid(fmt::format("copies[{}].{}", i, field),
                             fmt::format("{}; accepted: a page in [0, {})", id, pages));
    };
    KVILT_RETURN_IF_ERROR(page("from", copy.from));
    KVILT_RETURN_IF_ERROR(page("to", copy.to));
    if (copy.from == copy.to) {
      return Status::Invalid(fmt::format("copies[{}].to", i),
                             fmt::format("page {} onto itself", copy.to));
    }
    if (copy.rows < 0 || copy.rows > page_size) {
      return Status::Invalid(fmt::format("copies[{}].rows", i),
                             fmt::format("{}; accepted: 0 to page_size, {}", copy.rows, page_size));
    }
  }
  return {};
}

Result<plan::SegmentGeometry> Check(const Device& device, const Segment& cache,
                                    std::span<const PageCopy> copies) {
  if (cache.paged() == nullptr) return Status::Invalid("cache", "ragged; pages need a paged cache");
  auto geometry = plan::CheckSides(cache, device.id().kind, true, "cache");
  if (!geometry.ok()) return geometry;
  KVILT_RETURN_IF_ERROR(api::CheckCacheApart(cache));
  KVILT_RETURN_IF_ERROR(CheckCopies(copies, geometry->pages, geometry->page_size));
  return geometry;
}

void Copy(const Device& device, const Segment& cache, i64 heads, std::span<const PageCopy> copies) {
  const contract::SegmentParams params = api::BindSegment(cache);
  Rows tensors[4];
  int count = CollectRows(cache.k(), params.k, tensors);
  count += CollectRows(cache.v(), params.v, tensors + count);
  i64 bytes = 0;
  for (int t = 0; t < count; ++t) {
    for (const PageCopy& copy : copies) bytes += copy.rows * tensors[t].row_bytes;
  }
  // Heads are independent of each other; the copies of one head keep their order, so a page may be
  // copied on after it was copied to.
  const auto copy_head = [&](int, i64 index) {
    CopyHead(tensors[index / heads], copies, index % heads);
  };
  if (bytes * heads < kParallelBytes) {
    for (i64 index = 0; index < count * heads; ++index) copy_head(0, index);
  } else {
    device.impl()->pool->ParallelFor(count * heads, copy_head);
  }
}

}  // namespace

Status CopyPages(const Device& device, const Segment& cache, std::span<const PageCopy> copies,
                 Stream stream) {
  KVILT_RETURN_IF_ERROR(api::CheckOnCpu(device, "CopyPages"));
  KVILT_RETURN_IF_ERROR(api::CheckStream(device, stream));
  return api::OrNoMemory("cache", "its description", [&]() -> Status {
    const auto geometry = Check(device, cache, copies);
    if (!geometry.ok()) return geometry.status();
    Copy(device, cache, geometry->kv_heads, copies);
    return {};
  });
}

}  // namespace kvilt
