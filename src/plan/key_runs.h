// The ranges of keys that are cut into splits, each for the row blocks that read it together.
//
// A run is a stretch of keys of one row block, or (cascade) a shared segment for several row
// blocks whose segment begins at the same absolute key. A block's runs partition its keys, in
// order; a cut of a run is a split of every block in it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvilt/attention.h"
#include "src/contract/visibility.h"
#include "src/plan/row_blocks.h"
#include "src/plan/tile_select.h"
#include "src/plan/validate.h"

namespace kvilt::plan {

struct KeyRun {
  std::int64_t member_begin = 0;  // In KeyRuns::members.
  std::int64_t member_count = 0;  // > 1: a cascade.
  std::int64_t rows = 0;          // Query rows of all members.
  int request = 0;                // Of the first member: locates segment borders.
  int formats = 0;                // Index of the K and V formats, see MakeKeyRuns.
  contract::KeyRange keys;
  double cost = 0;  // Of all KV heads, without set-up; see RunOptions::costs.
  // Decided by split_kv.h:
  std::int64_t splits = 1;
  int head_groups = 1;
};

struct RunMember {
  int block = 0;
  std::int64_t first_split = 0;  // Split of the block that the run's first split is.
};

struct KeyRuns {
  std::vector<KeyRun> runs;
  std::vector<RunMember> members;
  // Runs of block b in key order: block_runs[block_begin[b] .. block_begin[b + 1]).
  struct BlockRun {
    int run = 0;
    std::int64_t member = 0;
  };
  std::vector<BlockRun> block_runs;
  std::vector<std::int64_t> block_begin;
  double total_cost = 0;

  // Memory of MakeKeyRuns, kept to be used again: the cascades of each block, in key order.
  struct Link {
    BlockRun run;
    int next = -1;
  };
  std::vector<Link> links;
  std::vector<int> first_link;   // [blocks], -1 = none.
  std::vector<int> first_block;  // [batch + 1]
  std::vector<int> candidates;

  void clear() {
    runs.clear();
    members.clear();
    block_runs.clear();
    block_begin.clear();
    total_cost = 0;
    links.clear();
  }
};

// Per-segment weights and piecewise costs of key ranges.
class KeyCosts {
 public:
  // Keeps a pointer to `geometry`. Replaces what was there; memory is used again.
  void Assign(const AttentionRequest& request, const RequestGeometry& geometry);

  // Cost of `keys` of request r for `head_rows` (query rows times group) and one KV head.
  double Range(std::int64_t r, contract::KeyRange keys, std::int64_t head_rows) const;
  // The key at which the cost of [keys.begin, key) reaches `cost`.
  std::int64_t KeyAt(std::int64_t r, contract::KeyRange keys, std::int64_t head_rows,
                     double cost) const;
  // Bytes of KV, scales included, in `keys` of request r, all KV heads.
  std::int64_t Bytes(std::int64_t r, contract::KeyRange keys) const;

  double read_rows(std::size_t segment) const { return read_rows_[segment]; }

 private:
  const RequestGeometry* geometry_ = nullptr;
  int dims_ = 0;
  std::vector<double> read_rows_;        // [segments], see cost_model.h.
  std::vector<std::int64_t> key_bytes_;  // [segments], of one key, all KV heads.
};

struct RunOptions {
  // Gather blocks of the owners of shared segments where it pays. Never with kOff, nor with
  // rope.key_positions (owners may then rotate one key differently).
  bool cascade = false;
  std::int64_t cascade_rows = 0;  // Most query rows of a cascade.
  // Of each segment, which pair of K and V formats it has; a run never spans two. Empty: it may.
  std::span<const int> segment_formats;
  // Fill KeyRun::cost and KeyRuns::total_cost, which only CPU planning weighs.
  bool costs = true;
};
// Replaces `runs`, whose memory is used again.
void MakeKeyRuns(const AttentionRequest& request, const RequestGeometry& geometry,
                 const std::vector<PlannedBlock>& blocks, const KeyCosts& costs,
                 const ModelDims& dims, const RunOptions& options, KeyRuns& runs);

}  // namespace kvilt::plan
