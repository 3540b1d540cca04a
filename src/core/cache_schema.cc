#include "src/core/cache_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "src/core/cache_file.h"

namespace kvilt::core {
namespace {

constexpr std::array<std::string_view, 10> kCacheKeys = {
    "version", "cache", "page_size", "owners",
    // Of each side, behind "k." or "v.":
    "dtype", "layout", "scale_layout", "scale_row_blocks", "global", "allow_unusual_scale"};
constexpr std::size_t kFirstSideKey = 4;
constexpr std::array<std::string_view, 19> kQueryKeys = {"q.dtype",
                                                         "q_scale",
                                                         "sm_scale",
                                                         "logits_soft_cap",
                                                         "mask",
                                                         "window_left",
                                                         "window_right",
                                                         "alibi_origin",
                                                         "bias_before_cap",
                                                         "lse_base",
                                                         "lse_has_sink",
                                                         "rope.theta",
                                                         "rope.pairing",
                                                         "rope.frequency",
                                                         "rope.rotary_dim",
                                                         "rope.scale",
                                                         "rope.original_length",
                                                         "rope.low_freq_factor",
                                                         "rope.high_freq_factor"};

bool IsQueryKey(std::string_view key) {
  return key.starts_with(kPrefix) && std::find(kQueryKeys.begin(), kQueryKeys.end(),
                                               key.substr(kPrefix.size())) != kQueryKeys.end();
}

}  // namespace

bool IsSegmentKey(std::string_view key) {
  if (!key.starts_with(kPrefix)) return false;
  key.remove_prefix(kPrefix.size());
  const auto* side_keys = kCacheKeys.begin() + kFirstSideKey;
  if (key.starts_with("k.") || key.starts_with("v.")) {
    return std::find(side_keys, kCacheKeys.end(), key.substr(2)) != kCacheKeys.end();
  }
  return std::find(kCacheKeys.begin(), side_keys, key) != side_keys;
}

Axes AxesOf(const TensorView& view, KvLayout layout) {
  const bool paged = view.rank == 4;
  const int token_axis = (paged ? 1 : 0) + (layout == KvLayout::kHND ? 1 : 0);
  const int head_axis = (paged ? 1 : 0) + (layout == KvLayout::kHND ? 0 : 1);
  return {paged ? view.shape[0] : 1, view.shape[token_axis], view.shape[head_axis],
          view.shape[view.rank - 1]};
}

std::string ShapeText(const TensorView& view) {
  return fmt::format("[{}]", fmt::join(view.shape, view.shape + view.rank, ", "));
}

Status CheckSchema(const Metadata& metadata) {
  MetadataReader reader(metadata);
  const auto version = reader.Text("kvilt.version");
  if (!version) {
    reader.Refuse("kvilt.version",
                  fmt::format("missing, expected {}: not a file of this schema (docs/formats.md)",
                              kSchemaVersion));
  } else if (*version != kSchemaVersion) {
    reader.Refuse("kvilt.version", fmt::format("'{}', expected {}", *version, kSchemaVersion));
  }
  for (const auto& [key, text] : metadata) {
    if (key.starts_with(kPrefix) && !IsSegmentKey(key) && !IsQueryKey(key)) {
      reader.Refuse(key, "unknown key; docs/formats.md lists those of the schema");
    }
  }
  return reader.status();
}

}  // namespace kvilt::core
