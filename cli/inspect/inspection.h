// Everything that `kvilt inspect` finds out about a file, as one value, and its two forms.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/inspect/cache_rows.h"
#include "cli/inspect/scale_order.h"
#include "cli/inspect/side_stats.h"
#include "src/core/cache_file.h"

namespace kvilt::cli {

struct SideInspection {
  std::string name;  // "k" or "v"
  CacheSide side;
  SideStats stats;
  ScaleOrder scale_order;
};

struct CacheInspection {
  bool paged = false;
  std::vector<std::int32_t> owners;
  CacheRows rows;
  std::vector<SideInspection> sides;
  double bytes_per_token = 0;  // K and V of all KV heads, scales included.
};

struct Inspection {
  std::string path;
  std::vector<core::NamedTensor> tensors;  // All of the file; borrowed from it.
  core::Metadata metadata;
  std::optional<CacheInspection> cache;  // Empty: other files, results of `kvilt run` too.
  // What cannot be right: declarations that planning would refuse, page tables, NaN, a scale order
  // that contradicts the declared one.
  std::vector<std::string> problems;
};

// Errors: kInvalidArgument when the file claims the schema and breaks it.
Result<Inspection> Inspect(const core::TensorFile& file);

std::string ToText(const Inspection& inspection);
std::string ToJson(const Inspection& inspection);

}  // namespace kvilt::cli
