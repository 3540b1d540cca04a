// What a cache in a file declares and planning would refuse, whatever its bytes hold.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kvilt/kv_cache.h"

namespace kvilt::cli {

// Globals that no reader accepts or that look like a reciprocal; scale layouts that do not fit the
// side. `name` is "k" or "v". REQUIRES: a side that LoadCacheFile accepts.
void AddDeclarationProblems(std::string_view name, const CacheSide& side,
                            std::vector<std::string>& problems);

// Owners out of order, or beyond the `batch` requests that the queries in the file have (-1: the
// file has none); a shared segment with other than one row. `rows`: of the table.
void AddOwnerProblems(const std::vector<std::int32_t>& owners, std::int64_t batch,
                      std::int64_t rows, std::vector<std::string>& problems);

}  // namespace kvilt::cli
