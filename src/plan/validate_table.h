// Walks the table of a segment: checks it and hands out the length of each row. Used by
// validate_segment.h (planning) and match.h (every Run), so success allocates nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "kvilt/kv_cache.h"
#include "kvilt/status.h"

namespace kvilt::plan {

// Called once per table row, in order, with the tokens of the row. Pass std::cref(lambda), which
// std::function holds without allocating. An error stops the walk and is returned.
using LengthVisitor = std::function<Status(std::int64_t row, std::int64_t tokens)>;

// `rows` rows (kAnyExtent: as many as the table has). Names in messages are relative to `field`,
// the segment. `check_pages`: every addressed id of a host table must be in [0, pages).
Status WalkPageTable(const PageTable& table, std::int64_t rows, std::int64_t pages,
                     std::int64_t page_size, DeviceKind device, bool check_pages,
                     std::string_view field, const LengthVisitor& visit);

// The same walk, with the lengths of all rows in `lengths`, whose memory is used again.
Status PageTableLengths(const PageTable& table, std::int64_t rows, std::int64_t pages,
                        std::int64_t page_size, DeviceKind device, bool check_pages,
                        std::string_view field, std::vector<std::int64_t>& lengths);

// The same for the indptr of a ragged cache of `total` rows.
Status WalkRaggedIndptr(const IndexArray& indptr, std::int64_t rows, std::int64_t total,
                        DeviceKind device, std::string_view field, const LengthVisitor& visit);

}  // namespace kvilt::plan
