// Checks the table of a segment and reads the lengths out of it. Part of validate_segment.h.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "kvilt/kv_cache.h"
#include "kvilt/status.h"

namespace kvilt::plan {

// The tokens of each of `rows` table rows (kAnyExtent: as many rows as the table has). `first` is
// the request that row 0 stands for in messages (the first owner of a shared segment).
Result<std::vector<std::int64_t>> CheckPageTable(const PageTable& table, std::int64_t rows,
                                                 std::int64_t pages, std::int64_t page_size,
                                                 DeviceKind device, bool check_pages,
                                                 std::string_view field);

// The same for the indptr of a ragged cache of `total` rows.
Result<std::vector<std::int64_t>> CheckRaggedIndptr(const IndexArray& indptr, std::int64_t rows,
                                                    std::int64_t total, DeviceKind device,
                                                    std::string_view field);

}  // namespace kvilt::plan
