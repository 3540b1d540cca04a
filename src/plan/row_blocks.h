// Cuts each request's query rows into blocks and finds the keys that each block may see.
#pragma once

#include <cstdint>
#include <vector>

#include "kvilt/request.h"
#include "kvilt/status.h"
#include "src/contract/visibility.h"
#include "src/plan/validate.h"

namespace kvilt::plan {

// Counts of the plan's lists stay below this, well inside the 32 bits of the plan data.
inline constexpr std::int64_t kMaxListEntries = std::int64_t{1} << 26;

struct PlannedBlock {
  int request = 0;
  std::int64_t row_begin = 0;  // In the request.
  std::int64_t row_count = 0;
  contract::KeyRange keys;  // From the first to the last key that any row may see, by position.
};

struct BlockList {
  std::vector<PlannedBlock> blocks;
  double visible_pairs = 0;  // (row, key) pairs that position, causal mask and window let through.
};

// Blocks of at most `rows_per_block` rows, as equal as they can be, in request order. A request's
// blocks depend on its own length alone. Bits of custom and tree masks are not read: their keys
// count as visible. Errors: more blocks than plan data can count.
Result<BlockList> MakeRowBlocks(const AttentionRequest& request, const RequestGeometry& geometry,
                                std::int64_t rows_per_block);

}  // namespace kvilt::plan
