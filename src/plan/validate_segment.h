// Checks one segment of a request: the two sides of its cache and its table.
//
// SEMANTICS sections 1 and 2. Used by planning, AppendKv and DequantizeKv. Reads host tables and
// host globals, never a cache. Thread-safe.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "kvilt/kv_cache.h"
#include "kvilt/status.h"
#include "src/plan/tensor_check.h"
#include "src/plan/validate_table.h"

namespace kvilt::plan {

// What the checks found out about a segment.
struct SegmentGeometry {
  bool paged = false;
  int kv_heads = 0;
  int head_dim_k = 0;  // Values, not storage elements.
  int head_dim_v = 0;
  std::int64_t pages = 0;      // Ragged: 1.
  std::int64_t page_size = 0;  // Ragged: the rows of the total axis.
  // Tokens of each table row: [batch], or [1] for a shared segment. Empty after CheckSides.
  std::vector<std::int64_t> lengths;
};

inline constexpr int kMaxHeadDim = 512;
inline constexpr std::int64_t kMaxHeads = 1 << 20;  // So that head products fit 32 bits with room.

// head_dim is one that a cache (or query) of `dtype` may have on the device: multiples of 8 for
// 16-bit, fp8 and f32 on the CPU, of 16 on the GPU and for nvfp4; 1 step..512. `field` is the axis.
Status CheckHeadDim(DType dtype, std::int64_t head_dim, DeviceKind device, FieldPath field);

// DecodeScale: finite and within [2^-100, 2^100], outside [2^-20, 64] only when allow_unusual; an
// array has 1 or kv_heads entries, and its values are checked when it lies on the host.
Status CheckDecodeScale(const DecodeScale& scale, std::int64_t kv_heads, DeviceKind device,
                        FieldPath field);

// Everything but the table: dtypes, shapes, strides, scale tensors and layouts, globals, agreement
// of K and V (heads, pages, page size). `addressed`: null data is refused.
Result<SegmentGeometry> CheckSides(const Segment& segment, DeviceKind device, bool addressed,
                                   std::string_view field);

// CheckSides, then the owners and the table: one row per request (`batch` of them; kAnyExtent: as
// many as the table has), or exactly one for a shared segment. `check_pages`: every addressed id
// of a host table must be in [0, pages). Null data is legal only where no row has a token.
// Replaces `geometry`, whose memory is used again.
Status CheckSegment(const Segment& segment, std::int64_t batch, DeviceKind device, bool check_pages,
                    std::string_view field, SegmentGeometry& geometry);

Result<SegmentGeometry> CheckSegment(const Segment& segment, std::int64_t batch, DeviceKind device,
                                     bool check_pages, std::string_view field);

// Refuses null data and null scales of both sides. Call it when some token is addressed.
Status CheckCacheAddressed(const Segment& segment, std::string_view field);

// The table alone, of a segment whose sides are known to be `geometry`: calls `visit` with the
// tokens of each of `rows` rows. Allocates nothing unless it fails.
Status WalkTable(const Segment& segment, const SegmentGeometry& geometry, std::int64_t rows,
                 DeviceKind device, bool check_pages, std::string_view field,
                 const LengthVisitor& visit);

}  // namespace kvilt::plan
