// Where the keys of a request lie, and their values: segments, page tables, layouts, globals.
#pragma once

#include <cstdint>
#include <vector>

#include "kvilt/request.h"

namespace kvilt::oracle {

// One key of a request, in its segment's cache.
struct KeyPlace {
  const Segment* segment = nullptr;
  std::int64_t page = 0;   // Paged caches.
  std::int64_t token = 0;  // In its page, or along the total axis.
};

// The keys of request r in order: its segments, shared ones only if it owns them.
// Aborts on a page id out of range: such a request is not accepted in the first place.
std::vector<KeyPlace> KeysOf(const AttentionRequest& request, std::int64_t r);

// The dequantized row of a key, float64: (code * scale) * global.
std::vector<double> KeyRow(const KeyPlace& place, std::int64_t kv_head);
std::vector<double> ValueRow(const KeyPlace& place, std::int64_t kv_head);

std::int64_t KvHeads(const AttentionRequest& request);

}  // namespace kvilt::oracle
