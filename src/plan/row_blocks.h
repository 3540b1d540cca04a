// Cuts each request's query rows into blocks and finds the keys that each block may see.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kvilt/request.h"
#include "kvilt/status.h"
#include "src/contract/visibility.h"
#include "src/plan/validate.h"

namespace kvilt::plan {

// Counts of the plan's lists stay below this, well inside the 32 bits of the plan data.
inline constexpr std::int64_t kMaxListEntries = std::int64_t{1} << 26;

// Requests with alike numbers of rows share a tile on GPUs. Class c holds at most kClassRows[c]
// query rows times group; the last one takes everything longer.
inline constexpr std::array<int, 5> kClassRows = {8, 16, 32, 64, 128};
inline constexpr int kRowClasses = static_cast<int>(kClassRows.size());

constexpr int RowClassOf(std::int64_t head_rows) {
  int c = 0;
  while (c + 1 < kRowClasses && head_rows > kClassRows[static_cast<std::size_t>(c)]) ++c;
  return c;
}

// Query rows of a full block, by class; the CPU has one class for all.
struct RowTiling {
  int group = 1;
  bool by_class = false;
  std::array<std::int64_t, kRowClasses> rows{};

  int ClassOf(std::int64_t q_len) const { return by_class ? RowClassOf(q_len * group) : 0; }
  std::int64_t RowsOf(int row_class) const { return rows[static_cast<std::size_t>(row_class)]; }
};

struct PlannedBlock {
  int request = 0;
  int row_class = 0;
  std::int64_t row_begin = 0;  // In the request.
  std::int64_t row_count = 0;
  contract::KeyRange keys;  // From the first to the last key that any row may see, by position.
};

struct BlockList {
  std::vector<PlannedBlock> blocks;
  double visible_pairs = 0;  // (row, key) pairs that position, causal mask and window let through.
};

// Blocks of at most as many rows as the tiling says, as equal as they can be, in request order. A
// request's blocks depend on its own length alone. Bits of custom and tree masks are not read:
// their keys count as visible. Replaces `list`, whose memory is used again. Errors: more blocks
// than plan data can count.
Status MakeRowBlocks(const AttentionRequest& request, const RequestGeometry& geometry,
                     const RowTiling& tiling, BlockList& list);

}  // namespace kvilt::plan
