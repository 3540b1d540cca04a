// The words of the cache schema, shared by loaders and writer. Private to cache_file*.cc and
// query_file.cc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kvilt/kv_cache.h"

namespace kvilt::core {

inline constexpr std::string_view kPrefix = "kvilt.";
inline constexpr std::string_view kCacheKinds[] = {"paged", "ragged"};
inline constexpr std::string_view kLayouts[] = {"NHD", "HND"};
inline constexpr std::string_view kScaleLayouts[] = {"linear", "interleaved4"};
inline constexpr std::string_view kCacheDTypes = "f32, bf16, f16, e4m3, e5m2, nvfp4";

// Whether the loader takes `key` for the segment, and the writer sets it from the segment.
bool IsSegmentKey(std::string_view key);

// Extents of a side in words: how its axes are named by its layout.
struct Axes {
  std::int64_t pages = 0;   // 1 for a ragged cache.
  std::int64_t tokens = 0;  // Per page; the total for a ragged cache.
  std::int64_t heads = 0;
  std::int64_t row = 0;
  friend bool operator==(const Axes&, const Axes&) = default;
};

// REQUIRES: rank 3 or 4.
Axes AxesOf(const TensorView& view, KvLayout layout);

// "[4, 16, 8, 64]"
std::string ShapeText(const TensorView& view);

}  // namespace kvilt::core
