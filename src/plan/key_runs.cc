#include "src/plan/key_runs.h"

#include <algorithm>

#include "src/plan/cost_model.h"

namespace kvilt::plan {
namespace {

using contract::KeyRange;

// Blocks that read one shared segment together.
struct CascadeGroup {
  std::size_t segment = 0;
  KeyRange keys;
  std::vector<int> blocks;
};

class CascadeFinder {
 public:
  CascadeFinder(const AttentionRequest& request, const RequestGeometry& geometry,
                const std::vector<PlannedBlock>& blocks, const KeyCosts& costs,
                const ModelDims& dims, std::int64_t rows_per_block)
      : request_(request),
        geometry_(geometry),
        blocks_(blocks),
        costs_(costs),
        group_(dims.group()),
        rows_per_block_(rows_per_block) {
    // Blocks of a request are consecutive; first_block_[r] .. first_block_[r + 1].
    first_block_.assign(static_cast<std::size_t>(geometry.batch) + 1, 0);
    for (const PlannedBlock& block : blocks) {
      ++first_block_[static_cast<std::size_t>(block.request) + 1];
    }
    for (std::size_t r = 1; r < first_block_.size(); ++r) first_block_[r] += first_block_[r - 1];
  }

  std::vector<CascadeGroup> Find() const {
    std::vector<CascadeGroup> groups;
    for (std::size_t s = 0; s < request_.segments.size(); ++s) {
      const std::int64_t length =
          request_.segments[s].owners.size() > 1 ? geometry_.segments[s].lengths[0] : 0;
      if (length == 0) continue;
      AddGroups(s, length, Candidates(s, length), groups);
    }
    return groups;
  }

 private:
  std::int64_t BeginOf(int block, std::size_t s) const {
    return geometry_.segment_begin(blocks_[static_cast<std::size_t>(block)].request,
                                   static_cast<std::int64_t>(s));
  }

  // Blocks of the owners that see the whole segment, by where it begins for them.
  std::vector<int> Candidates(std::size_t s, std::int64_t length) const {
    std::vector<int> found;
    for (std::int32_t owner : request_.segments[s].owners) {
      const auto r = static_cast<std::size_t>(owner);
      for (int b = first_block_[r]; b < first_block_[r + 1]; ++b) {
        const KeyRange keys = blocks_[static_cast<std::size_t>(b)].keys;
        const std::int64_t begin = BeginOf(b, s);
        if (keys.begin <= begin && keys.end >= begin + length) found.push_back(b);
      }
    }
    std::stable_sort(found.begin(), found.end(),
                     [&](int a, int b) { return BeginOf(a, s) < BeginOf(b, s); });
    return found;
  }

  // Cuts the candidates into groups of the same begin and at most one full block of rows.
  void AddGroups(std::size_t s, std::int64_t length, const std::vector<int>& candidates,
                 std::vector<CascadeGroup>& groups) const {
    CascadeGroup group;
    std::int64_t rows = 0;
    const auto close = [&] {
      if (Pays(group, rows)) groups.push_back(group);
      group.blocks.clear();
      rows = 0;
    };
    for (int b : candidates) {
      const std::int64_t begin = BeginOf(b, s);
      const std::int64_t block_rows = blocks_[static_cast<std::size_t>(b)].row_count;
      if (!group.blocks.empty() &&
          (group.keys.begin != begin || rows + block_rows > rows_per_block_)) {
        close();
      }
      group.segment = s;
      group.keys = {begin, begin + length};
      group.blocks.push_back(b);
      rows += block_rows;
    }
    close();
  }

  // Reads saved against one more partial to write and one to merge for every row.
  bool Pays(const CascadeGroup& group, std::int64_t rows) const {
    if (group.blocks.size() < 2) return false;
    const auto keys = static_cast<double>(group.keys.end - group.keys.begin);
    const double saved =
        static_cast<double>(group.blocks.size() - 1) * costs_.read_rows(group.segment) * keys;
    return saved > 2 * kPartialKeys * static_cast<double>(rows * group_);
  }

  const AttentionRequest& request_;
  const RequestGeometry& geometry_;
  const std::vector<PlannedBlock>& blocks_;
  const KeyCosts& costs_;
  const std::int64_t group_;
  const std::int64_t rows_per_block_;
  std::vector<int> first_block_;
};

class RunBuilder {
 public:
  RunBuilder(const std::vector<PlannedBlock>& blocks, const KeyCosts& costs, const ModelDims& dims)
      : blocks_(blocks), costs_(costs), dims_(dims), shared_(blocks.size()) {
    out_.runs.reserve(blocks.size());
    out_.members.reserve(blocks.size());
    out_.block_runs.reserve(blocks.size());
    out_.block_begin.reserve(blocks.size() + 1);
  }

  void AddCascade(const CascadeGroup& group) {
    KeyRun run = NewRun(group.blocks.front(), group.keys);
    run.rows = 0;
    for (int b : group.blocks) {
      shared_[static_cast<std::size_t>(b)].push_back(
          {static_cast<int>(out_.runs.size()), static_cast<std::int64_t>(out_.members.size())});
      out_.members.push_back({b, 0});
      run.rows += blocks_[static_cast<std::size_t>(b)].row_count;
      ++run.member_count;
    }
    Push(run);
  }

  // The block's keys: its cascades, in key order, and runs of its own between them.
  void AddBlock(int b) {
    out_.block_begin.push_back(static_cast<std::int64_t>(out_.block_runs.size()));
    const KeyRange keys = blocks_[static_cast<std::size_t>(b)].keys;
    contract::i64 next = keys.begin;
    for (const KeyRuns::BlockRun& shared : shared_[static_cast<std::size_t>(b)]) {
      const KeyRange range = out_.runs[static_cast<std::size_t>(shared.run)].keys;
      AddOwn(b, {next, range.begin});
      out_.block_runs.push_back(shared);
      next = range.end;
    }
    AddOwn(b, {next, keys.end});
  }

  KeyRuns Finish() {
    out_.block_begin.push_back(static_cast<std::int64_t>(out_.block_runs.size()));
    return std::move(out_);
  }

 private:
  KeyRun NewRun(int b, KeyRange keys) const {
    KeyRun run;
    run.member_begin = static_cast<std::int64_t>(out_.members.size());
    run.request = blocks_[static_cast<std::size_t>(b)].request;
    run.rows = blocks_[static_cast<std::size_t>(b)].row_count;
    run.keys = keys;
    return run;
  }

  void AddOwn(int b, KeyRange keys) {
    if (keys.empty()) return;
    KeyRun run = NewRun(b, keys);
    run.member_count = 1;
    out_.block_runs.push_back(
        {static_cast<int>(out_.runs.size()), static_cast<std::int64_t>(out_.members.size())});
    out_.members.push_back({b, 0});
    Push(run);
  }

  void Push(KeyRun& run) {
    run.cost = costs_.Range(run.request, run.keys, run.rows * dims_.group()) * dims_.kv_heads;
    out_.total_cost += run.cost;
    out_.runs.push_back(run);
  }

  const std::vector<PlannedBlock>& blocks_;
  const KeyCosts& costs_;
  const ModelDims& dims_;
  std::vector<std::vector<KeyRuns::BlockRun>> shared_;  // Cascades of each block.
  KeyRuns out_;
};

}  // namespace

KeyRuns MakeKeyRuns(const AttentionRequest& request, const RequestGeometry& geometry,
                    const std::vector<PlannedBlock>& blocks, const KeyCosts& costs,
                    const ModelDims& dims, std::int64_t rows_per_block, bool cascade) {
  RunBuilder builder(blocks, costs, dims);
  const bool rotates_apart = request.rope && request.rope->key_positions.defined();
  if (cascade && !rotates_apart && !request.segments[0].owners.empty()) {
    const CascadeFinder finder(request, geometry, blocks, costs, dims, rows_per_block);
    for (const CascadeGroup& group : finder.Find()) builder.AddCascade(group);
  }
  for (std::size_t b = 0; b < blocks.size(); ++b) builder.AddBlock(static_cast<int>(b));
  return builder.Finish();
}

}  // namespace kvilt::plan
