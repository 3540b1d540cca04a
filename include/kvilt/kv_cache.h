// Where keys and values lie: the sides of a cache, page tables, and segments.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "kvilt/tensor.h"

namespace kvilt {

// Order of the token and head axes of a side: NHD = [..., token, head, row], HND = [..., head,
// token, row]. K and V may differ.
enum class KvLayout : std::uint8_t { kNHD = 0, kHND = 1 };

// Order of the NVFP4 scales within one (page, head) view [page_size, S = head_dim / 16].
// Declared, never inferred; docs/formats.md specifies both to the byte.
enum class ScaleLayout : std::uint8_t {
  kLinear = 0,        // Scale (t, s) at row t, column s.
  kInterleaved4 = 1,  // V only: 4 tokens x 4 scales are swizzled; page_size % 4 == 0, S % 4 == 0.
};

// The f32 multiplier of the decode: value = stored * global. For NVFP4 about amax / 2688, where
// amax is the largest magnitude of the tensor and 2688 = 6 * 448. Not a reciprocal.
// Finite and in [2^-100, 2^100]; outside [2^-20, 64] only with `allow_unusual`, because a
// reciprocal passed by mistake usually lands there.
struct DecodeScale {
  float value = 1.0f;            // Used when `array` is null.
  const float* array = nullptr;  // One multiplier, or one per KV head.
  std::int64_t array_size = 0;   // 1 or kv_heads when `array` is set.
  DeviceId device;               // Where `array` points.
  bool allow_unusual = false;
};

// K or V of one cache. All strides are free (64-bit) but the innermost, which is 1.
struct CacheSide {
  // Paged: [pages, page_size, kv_heads, row] (NHD) or [pages, kv_heads, page_size, row] (HND).
  // Ragged: [total, kv_heads, row] (NHD) or [kv_heads, total, row] (HND).
  // row = RowElements(dtype, head_dim).
  TensorView data;
  // kNVFP4 only, required there and refused elsewhere: kE4M3, same axes, row = head_dim / 16.
  TensorView scales;
  KvLayout layout = KvLayout::kNHD;
  ScaleLayout scale_layout = ScaleLayout::kLinear;
  // kInterleaved4 only: the S = head_dim / 16 that the scales were written with. Another S is
  // refused, because that swizzle does not commute with slicing the head dim.
  int scale_row_blocks = 0;
  DecodeScale global;
};

// Which pages hold the tokens of each request ("row" of the table). Exactly one of the two forms:
// CSR: pages of row r are indices[indptr[r] .. indptr[r+1]); padded: indices is [rows, row_stride]
// and `indptr` is left undefined. Lengths come from `kv_len`, or with CSR from `last_page_len`
// (1..page_size; equal indptr means an empty row). Exactly one of the two is given.
// indptr, kv_len and last_page_len are host arrays; indices may be on the device of the cache.
struct PageTable {
  IndexArray indptr;            // [rows + 1], CSR only.
  IndexArray indices;           // Page ids.
  std::int64_t row_stride = 0;  // Padded only: page ids per row, >= pages of the longest row.
  IndexArray kv_len;            // [rows], tokens.
  IndexArray last_page_len;     // [rows], tokens in the last page.
};

struct PagedKv {
  CacheSide k;
  CacheSide v;
  PageTable table;
};

// Tokens of row r are [indptr[r], indptr[r+1]) of the total axis. indptr is a host array.
struct RaggedKv {
  CacheSide k;
  CacheSide v;
  IndexArray indptr;  // [rows + 1]
};

// One stretch of the keys of a request, in its own cache with its own dtypes and globals. The keys
// of a request are its segments in order. A segment has one table row per request of the batch; or
// it is shared: `owners` names the requests whose keys it begins (strictly increasing), the table
// has exactly one row, and its KV is read once for all owners (cascade). Shared segments precede
// private ones. Rows may be empty.
struct Segment {
  std::variant<PagedKv, RaggedKv> kv;
  std::vector<std::int32_t> owners;  // Empty = private.

  const CacheSide& k() const {
    return std::visit([](const auto& cache) -> const CacheSide& { return cache.k; }, kv);
  }
  const CacheSide& v() const {
    return std::visit([](const auto& cache) -> const CacheSide& { return cache.v; }, kv);
  }
  const PagedKv* paged() const { return std::get_if<PagedKv>(&kv); }
  const RaggedKv* ragged() const { return std::get_if<RaggedKv>(&kv); }
};

}  // namespace kvilt
