#include "src/plan/row_blocks.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/contract/types.h"
#include "src/core/check.h"

namespace kvilt::plan {
namespace {

using contract::CeilDiv;
using contract::KeyRange;

// Keys that the rows of a block may see, and how many (row, key) pairs that makes.
class BlockVisibility {
 public:
  BlockVisibility(const AttentionRequest& request, const RequestGeometry& geometry)
      : visibility_(geometry.visibility), positions_(request.q_positions) {
    has_window_ = visibility_.window_left >= 0 || visibility_.window_right >= 0;
    is_causal_ = visibility_.mask == static_cast<int>(contract::Mask::kCausal);
  }

  void Fill(PlannedBlock& block, std::int64_t q_begin, std::int64_t q_len, std::int64_t kv_len,
            double& pairs) const {
    if (q_len == 1 && !has_window_) {  // Decode: most blocks of most batches. See FillCausal.
      block.keys = {0, kv_len};
      pairs += static_cast<double>(kv_len);
    } else if (has_window_) {
      FillRowByRow(block, q_begin, q_len, kv_len, pairs);
    } else if (is_causal_) {
      FillCausal(block, q_len, kv_len, pairs);
    } else {
      block.keys = {0, kv_len};
      pairs += static_cast<double>(block.row_count) * static_cast<double>(kv_len);
    }
  }

 private:
  // Row i sees clamp(i + delta + 1, 0, kv_len) keys: an arithmetic series once it is positive.
  static void FillCausal(PlannedBlock& block, std::int64_t q_len, std::int64_t kv_len,
                         double& pairs) {
    const std::int64_t delta = kv_len - q_len;
    const std::int64_t last = block.row_begin + block.row_count - 1 + delta + 1;
    const std::int64_t first = std::max<std::int64_t>(block.row_begin + delta + 1, 1);
    block.keys = {0, std::clamp<std::int64_t>(last, 0, kv_len)};
    if (last < first) return;
    const auto terms = static_cast<double>(last - first + 1);
    pairs += terms * (static_cast<double>(first) + static_cast<double>(last)) / 2;
  }

  void FillRowByRow(PlannedBlock& block, std::int64_t q_begin, std::int64_t q_len,
                    std::int64_t kv_len, double& pairs) const {
    block.keys = {kv_len, 0};
    for (std::int64_t i = block.row_begin; i < block.row_begin + block.row_count; ++i) {
      const std::int64_t position =
          positions_.defined() ? positions_[q_begin + i] : i + kv_len - q_len;
      const KeyRange row = contract::VisibleKeys(visibility_, i, q_len, kv_len, position);
      if (row.empty()) continue;
      block.keys.begin = std::min(block.keys.begin, row.begin);
      block.keys.end = std::max(block.keys.end, row.end);
      pairs += static_cast<double>(row.end - row.begin);
    }
    if (block.keys.empty()) block.keys = {0, 0};
  }

  const contract::Visibility visibility_;
  const IndexArray& positions_;
  bool has_window_ = false;
  bool is_causal_ = false;
};

}  // namespace

Status MakeRowBlocks(const AttentionRequest& request, const RequestGeometry& geometry,
                     const RowTiling& tiling, BlockList& list) {
  const auto batch = static_cast<std::size_t>(geometry.batch);
  const auto blocks_of = [](std::int64_t q_len, std::int64_t rows) {
    return q_len <= rows ? std::int64_t{q_len > 0} : CeilDiv(q_len, rows);
  };
  std::int64_t count = 0;
  for (std::size_t r = 0; r < batch; ++r) {
    const std::int64_t q_len = geometry.q_begin[r + 1] - geometry.q_begin[r];
    count += blocks_of(q_len, tiling.RowsOf(tiling.ClassOf(q_len)));
  }
  if (count > kMaxListEntries) {
    return Status::Invalid("q_indptr",
                           fmt::format("{} rows make {} row blocks, expected <= {}",
                                       geometry.q_begin.back(), count, kMaxListEntries));
  }
  list.blocks.resize(static_cast<std::size_t>(count));
  list.visible_pairs = 0;
  PlannedBlock* block = list.blocks.data();
  const std::size_t segments = geometry.segments.size();
  const BlockVisibility visibility(request, geometry);
  for (std::size_t r = 0; r < batch; ++r) {
    const std::int64_t q_begin = geometry.q_begin[r];
    const std::int64_t q_len = geometry.q_begin[r + 1] - q_begin;
    const std::int64_t kv_len = geometry.segment_begins[r * (segments + 1) + segments];
    const int row_class = tiling.ClassOf(q_len);
    const std::int64_t blocks = blocks_of(q_len, tiling.RowsOf(row_class));
    if (blocks == 1) {
      *block = {static_cast<int>(r), row_class, 0, q_len, {}};
      visibility.Fill(*block++, q_begin, q_len, kv_len, list.visible_pairs);
      continue;
    }
    const std::int64_t rows = blocks == 0 ? 0 : q_len / blocks;
    const std::int64_t longer = q_len - rows * blocks;  // The first so many have a row more.
    for (std::int64_t b = 0; b < blocks; ++b, ++block) {
      block->request = static_cast<int>(r);
      block->row_class = row_class;
      block->row_begin = rows * b + std::min(b, longer);
      block->row_count = rows + (b < longer);
      visibility.Fill(*block, q_begin, q_len, kv_len, list.visible_pairs);
    }
  }
  return {};
}

}  // namespace kvilt::plan
