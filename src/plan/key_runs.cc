#include "src/plan/key_runs.h"

#include <algorithm>

#include "src/plan/cost_model.h"

namespace kvilt::plan {
namespace {

using contract::KeyRange;

class RunBuilder {
 public:
  RunBuilder(const AttentionRequest& request, const RequestGeometry& geometry,
             const std::vector<PlannedBlock>& blocks, const KeyCosts& costs, const ModelDims& dims,
             const RunOptions& options, KeyRuns& out)
      : request_(request),
        geometry_(geometry),
        blocks_(blocks),
        costs_(costs),
        dims_(dims),
        options_(options),
        out_(out) {
    out_.clear();
    out_.first_link.assign(blocks.size(), -1);
    out_.runs.reserve(blocks.size());
    out_.members.reserve(blocks.size());
    out_.block_runs.reserve(blocks.size());
    out_.block_begin.reserve(blocks.size() + 1);
  }

  void AddCascades() {
    // Blocks of a request are consecutive; first_block[r] .. first_block[r + 1].
    out_.first_block.assign(static_cast<std::size_t>(geometry_.batch) + 1, 0);
    for (const PlannedBlock& block : blocks_) {
      ++out_.first_block[static_cast<std::size_t>(block.request) + 1];
    }
    for (std::size_t r = 1; r < out_.first_block.size(); ++r) {
      out_.first_block[r] += out_.first_block[r - 1];
    }
    for (std::size_t s = 0; s < request_.segments.size(); ++s) {
      const std::int64_t length =
          request_.segments[s].owners.size() > 1 ? geometry_.segments[s].lengths[0] : 0;
      if (length == 0) continue;
      FindCandidates(s, length);
      AddGroups(s, length);
    }
  }

  // The block's keys: its cascades, in key order, and runs of its own between them.
  void AddBlock(int b) {
    out_.block_begin.push_back(static_cast<std::int64_t>(out_.block_runs.size()));
    const KeyRange keys = At(b).keys;
    contract::i64 next = keys.begin;
    for (int i = out_.first_link[static_cast<std::size_t>(b)]; i >= 0;) {
      const KeyRuns::Link& link = out_.links[static_cast<std::size_t>(i)];
      const KeyRange range = out_.runs[static_cast<std::size_t>(link.run.run)].keys;
      AddOwn(b, {next, range.begin});
      out_.block_runs.push_back(link.run);
      next = range.end;
      i = link.next;
    }
    AddOwn(b, {next, keys.end});
  }

  void Finish() { out_.block_begin.push_back(static_cast<std::int64_t>(out_.block_runs.size())); }

 private:
  const PlannedBlock& At(int block) const { return blocks_[static_cast<std::size_t>(block)]; }
  std::int64_t BeginOf(int block, std::size_t s) const {
    return geometry_.segment_begin(At(block).request, static_cast<std::int64_t>(s));
  }

  // Blocks of the owners that see the whole segment, by where it begins for them.
  void FindCandidates(std::size_t s, std::int64_t length) const {
    std::vector<int>& found = out_.candidates;
    found.clear();
    for (std::int32_t owner : request_.segments[s].owners) {
      const auto r = static_cast<std::size_t>(owner);
      for (int b = out_.first_block[r]; b < out_.first_block[r + 1]; ++b) {
        const std::int64_t begin = BeginOf(b, s);
        if (At(b).keys.begin <= begin && At(b).keys.end >= begin + length) found.push_back(b);
      }
    }
    std::sort(found.begin(), found.end(), [&](int a, int b) {
      return std::pair(BeginOf(a, s), a) < std::pair(BeginOf(b, s), b);
    });
  }

  // Cuts the candidates into groups of the same begin and at most `cascade_rows`.
  void AddGroups(std::size_t s, std::int64_t length) {
    const std::vector<int>& found = out_.candidates;
    for (std::size_t first = 0; first < found.size();) {
      const std::int64_t begin = BeginOf(found[first], s);
      std::int64_t rows = 0;
      std::size_t end = first;
      while (end < found.size() && BeginOf(found[end], s) == begin) {
        const std::int64_t more = At(found[end]).row_count;
        if (end > first && rows + more > options_.cascade_rows) break;
        rows += more;
        ++end;
      }
      const std::span<const int> group(&found[first], end - first);
      if (Pays(s, group, rows, length)) AddCascade(s, group, rows, {begin, begin + length});
      first = end;
    }
  }

  // Reads saved against one more partial to write and one to merge for every row.
  bool Pays(std::size_t s, std::span<const int> group, std::int64_t rows,
            std::int64_t length) const {
    if (group.size() < 2) return false;
    const double saved =
        static_cast<double>(group.size() - 1) * costs_.read_rows(s) * static_cast<double>(length);
    return saved > 2 * kPartialKeys * static_cast<double>(rows * dims_.group());
  }

  void AddCascade(std::size_t s, std::span<const int> group, std::int64_t rows, KeyRange keys) {
    KeyRun run = NewRun(group.front(), keys);
    run.rows = rows;
    run.member_count = static_cast<std::int64_t>(group.size());
    if (!options_.segment_formats.empty()) run.formats = options_.segment_formats[s];
    for (const int b : group) {
      Append(b,
             {static_cast<int>(out_.runs.size()), static_cast<std::int64_t>(out_.members.size())});
      out_.members.push_back({b, 0});
    }
    Push(run);
  }

  void Append(int block, KeyRuns::BlockRun run) {
    int* end = &out_.first_link[static_cast<std::size_t>(block)];
    while (*end >= 0) end = &out_.links[static_cast<std::size_t>(*end)].next;
    *end = static_cast<int>(out_.links.size());
    out_.links.push_back({run, -1});
  }

  KeyRun NewRun(int b, KeyRange keys) const {
    KeyRun run;
    run.member_begin = static_cast<std::int64_t>(out_.members.size());
    run.request = At(b).request;
    run.rows = At(b).row_count;
    run.keys = keys;
    return run;
  }

  // The block's own keys, in runs of one pair of formats.
  void AddOwn(int b, KeyRange keys) {
    if (options_.segment_formats.empty()) return AddOwnRun(b, keys, 0);
    const std::size_t segments = options_.segment_formats.size();
    for (std::size_t s = 0; s < segments;) {
      std::size_t end = s + 1;
      while (end < segments && options_.segment_formats[end] == options_.segment_formats[s]) ++end;
      const KeyRange part = {std::max<contract::i64>(keys.begin, BeginOf(b, s)),
                             std::min<contract::i64>(keys.end, BeginOf(b, end))};
      AddOwnRun(b, part, options_.segment_formats[s]);
      s = end;
    }
  }

  void AddOwnRun(int b, KeyRange keys, int formats) {
    if (keys.empty()) return;
    KeyRun run = NewRun(b, keys);
    run.member_count = 1;
    run.formats = formats;
    out_.block_runs.push_back(
        {static_cast<int>(out_.runs.size()), static_cast<std::int64_t>(out_.members.size())});
    out_.members.push_back({b, 0});
    Push(run);
  }

  void Push(KeyRun& run) {
    if (options_.costs) {
      run.cost = costs_.Range(run.request, run.keys, run.rows * dims_.group()) * dims_.kv_heads;
      out_.total_cost += run.cost;
    }
    out_.runs.push_back(run);
  }

  const AttentionRequest& request_;
  const RequestGeometry& geometry_;
  const std::vector<PlannedBlock>& blocks_;
  const KeyCosts& costs_;
  const ModelDims& dims_;
  const RunOptions& options_;
  KeyRuns& out_;
};

// One run for each block that sees a key: nothing is shared, and there is one pair of formats.
void MakePlainRuns(const std::vector<PlannedBlock>& blocks, const KeyCosts& costs,
                   const ModelDims& dims, const RunOptions& options, KeyRuns& out) {
  out.links.clear();
  out.total_cost = 0;
  // Memory that held runs before is written over, not built anew.
  out.runs.resize(blocks.size());
  out.members.resize(blocks.size());
  out.block_runs.resize(blocks.size());
  out.block_begin.resize(blocks.size() + 1);
  std::size_t count = 0;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    const PlannedBlock& block = blocks[b];
    const auto at = static_cast<std::int64_t>(count);
    out.block_begin[b] = at;
    if (block.keys.empty()) continue;
    KeyRun& run = out.runs[count];
    run = {};
    run.member_begin = at;
    run.member_count = 1;
    run.rows = block.row_count;
    run.request = block.request;
    run.keys = block.keys;
    if (options.costs) {
      run.cost = costs.Range(run.request, run.keys, run.rows * dims.group()) * dims.kv_heads;
      out.total_cost += run.cost;
    }
    out.members[count] = {static_cast<int>(b), 0};
    out.block_runs[count] = {static_cast<int>(count), at};
    ++count;
  }
  out.block_begin[blocks.size()] = static_cast<std::int64_t>(count);
  out.runs.resize(count);
  out.members.resize(count);
  out.block_runs.resize(count);
}

}  // namespace

void MakeKeyRuns(const AttentionRequest& request, const RequestGeometry& geometry,
                 const std::vector<PlannedBlock>& blocks, const KeyCosts& costs,
                 const ModelDims& dims, const RunOptions& options, KeyRuns& runs) {
  const bool rotates_apart = request.rope && request.rope->key_positions.defined();
  const bool cascade = options.cascade && !rotates_apart && !request.segments[0].owners.empty();
  if (!cascade && options.segment_formats.empty()) {
    return MakePlainRuns(blocks, costs, dims, options, runs);
  }
  RunBuilder builder(request, geometry, blocks, costs, dims, options, runs);
  if (cascade) builder.AddCascades();
  for (std::size_t b = 0; b < blocks.size(); ++b) builder.AddBlock(static_cast<int>(b));
  builder.Finish();
}

}  // namespace kvilt::plan
