// The lists that kernels walk: first how long they are, then every entry once, in its place.
#include <algorithm>
#include <span>

#include "src/core/check.h"
#include "src/plan/cuda/cost.h"
#include "src/plan/cuda/cuda_plan.h"
#include "src/plan/cuda/numbering.h"
#include "src/plan/work_list.h"

namespace kvilt::plan::cuda {
namespace {

using contract::i64;

// What counting and writing read.
struct ListInput {
  const int group;  // Query heads of a KV head.
  const std::vector<PlannedBlock>& blocks;
  const KeyRuns& runs;
  const CudaScratch& scratch;

  const PlannedBlock& BlockOf(i64 member) const {
    return blocks[static_cast<std::size_t>(runs.members[static_cast<std::size_t>(member)].block)];
  }
  RowBlockShape ShapeOf(int row_class) const {
    return scratch.shapes[static_cast<std::size_t>(row_class)];
  }
  // Row blocks of one member of an item.
  i64 SpansOf(const LaunchDraft& launch, int row_class) const {
    return launch.tile.kv_heads / ShapeOf(row_class).heads;
  }
};

class ListCounter {
 public:
  explicit ListCounter(const ListInput& in) : in_(in) {}

  void Count(const RequestGeometry& geometry, PlanCounts& counts, SplitSummary& summary) {
    counts.launches = static_cast<i64>(in_.scratch.launch_count);
    counts.batch = geometry.batch;
    counts.segments = static_cast<i64>(geometry.segments.size());
    counts.blocks = in_.scratch.row_block_begin.back();
    for (std::size_t l = 0; l < in_.scratch.launch_count; ++l) {
      const LaunchDraft& launch = in_.scratch.launches[l];
      counts.slots += launch.grid + 1;
      counts.items += launch.items;
      if (launch.cascade) {
        CountCascades(l, counts, summary);
      } else {
        counts.spans += launch.items * in_.SpansOf(launch, launch.row_class);
      }
    }
  }

 private:
  void CountCascades(std::size_t l, PlanCounts& counts, SplitSummary& summary) const {
    for (std::size_t p = in_.scratch.piece_begin[l]; p < in_.scratch.piece_begin[l + 1]; ++p) {
      const Piece& piece = in_.scratch.pieces[p];
      const KeyRun& run = in_.runs.runs[static_cast<std::size_t>(piece.run)];
      const i64 end = run.member_begin + run.member_count;
      if (in_.BlockOf(run.member_begin).request != in_.BlockOf(end - 1).request) {
        summary.cascade_items += piece.units;
      }
      for (i64 m = run.member_begin; m < end; ++m) {
        counts.spans +=
            piece.units * in_.SpansOf(in_.scratch.launches[l], in_.BlockOf(m).row_class);
      }
    }
  }

  const ListInput in_;
};

class ListWriter {
 public:
  ListWriter(const ListInput& in, const PlanDataWriter& out) : in_(in), out_(out) {}

  void Write() {
    for (std::size_t b = 0; b < in_.blocks.size(); ++b) WriteBlock(b);
    for (std::size_t l = 0; l < in_.scratch.launch_count; ++l) WriteLaunch(l);
    const PlanCounts& counts = in_.scratch.counts;
    KVILT_CHECK(block_ == counts.blocks && merge_ == counts.merges);
    KVILT_CHECK(slot_ == counts.slots && item_ == counts.items && span_ == counts.spans);
  }

 private:
  void WriteBlock(std::size_t b) {
    const PlannedBlock& planned = in_.blocks[b];
    const RowBlockShape shape = in_.ShapeOf(planned.row_class);
    const int count = in_.scratch.row_blocks[static_cast<std::size_t>(planned.row_class)];
    const i64 splits = in_.scratch.split_begin[b];
    contract::RowBlock block = {planned.request,   1, 0, shape.heads * in_.group, planned.row_begin,
                                planned.row_count, -1};
    contract::RowBlock* const out = out_.blocks + block_;
    if (splits < 0 && shape.slices == 1) {  // Most.
      for (int at = 0; at < count; ++at) {
        Put(at * block.q_head_count, block, out[at]);
      }
      block_ += count;
      return;
    }
    for (int at = 0; at < count; ++at, ++block_) {
      if (shape.slices == 1) {
        block.q_head_begin = at * block.q_head_count;
      } else {
        const int slice = at % shape.slices;
        block.q_head_begin = at / shape.slices * shape.heads * in_.group +
                             in_.group / shape.slices * slice +
                             std::min(slice, in_.group % shape.slices);
        block.q_head_count = QueryHeads(in_.group, shape, slice);
      }
      if (splits >= 0) {
        block.splits = in_.scratch.row_block_splits[static_cast<std::size_t>(splits + at)];
        WritePartials(block);
      }
      Put(block.q_head_begin, block, out[at]);
    }
  }

  // Where the block's partials lie, one block's behind another's; and who merges them.
  void WritePartials(contract::RowBlock& block) {
    block.partial_begin = -1;
    if (block.splits == 1) return;
    const i64 vectors = block.vectors();
    if (block.splits > 1) {
      block.partial_begin = partials_;
      partials_ += block.splits * vectors;
    }
    for (i64 vector = 0; vector < vectors; vector += kMergeVectors) {
      out_.merges[merge_++] = {static_cast<int>(block_), 0, vector,
                               std::min<i64>(kMergeVectors, vectors - vector)};
    }
  }

  void WriteLaunch(std::size_t l) {
    const LaunchDraft& launch = in_.scratch.launches[l];
    contract::LaunchInfo& info = out_.launches[l];
    info.tile = launch.tile;
    info.grid = launch.grid;
    info.slot_begin = static_cast<int>(slot_);
    info.block_heads = in_.ShapeOf(launch.row_class).heads;
    info.row_class = launch.row_class;
    info.cascade = launch.cascade;
    const std::span<const Piece> pieces(
        in_.scratch.pieces.data() + in_.scratch.piece_begin[l],
        in_.scratch.piece_begin[l + 1] - in_.scratch.piece_begin[l]);
    WriteSlots(launch, pieces);
    if (!launch.cascade && launch.slices == 1) return WritePlainItems(launch, pieces);
    for (const Piece& piece : pieces) {
      for (int unit = piece.unit; unit < piece.unit + piece.units; ++unit) {
        WriteItem(launch, piece, unit);
      }
    }
  }

  // Where the items of each block of the grid begin.
  void WriteSlots(const LaunchDraft& launch, std::span<const Piece> pieces) {
    int* const begins = out_.slot_begins + slot_;
    auto item = static_cast<int>(item_);
    int slot = 0;
    begins[0] = item;
    for (const Piece& piece : pieces) {
      while (slot < piece.slot) begins[++slot] = item;
      item += piece.units;
    }
    while (slot < launch.grid) begins[++slot] = item;
    slot_ += launch.grid + 1;
  }

  // Almost all items of almost all batches, so in locals: entries written may alias members.
  void WritePlainItems(const LaunchDraft& launch, std::span<const Piece> pieces) {
    contract::WorkItem* item = out_.items + item_;
    contract::WorkSpan* const spans = out_.spans;
    const int count = static_cast<int>(in_.SpansOf(launch, launch.row_class));
    const int heads = launch.tile.kv_heads;
    const double item_cycles = launch.estimate.item_cycles;
    const double key_cycles = launch.estimate.key_cycles;
    contract::WorkSpan* span = spans + span_;
    int run = -1;
    int base = 0;                 // The first row block of the run's rows.
    const int* before = nullptr;  // Splits of its row blocks before this run; null: none.
    for (const Piece& piece : pieces) {
      if (piece.run != run) {
        run = piece.run;
        const auto member =
            static_cast<std::size_t>(in_.runs.runs[static_cast<std::size_t>(run)].member_begin);
        const auto block = static_cast<std::size_t>(in_.runs.members[member].block);
        base = static_cast<int>(in_.scratch.row_block_begin[block]);
        const i64 first = in_.scratch.first_begin[member];
        before = first < 0 ? nullptr : &in_.scratch.first_split[static_cast<std::size_t>(first)];
      }
      const auto at = static_cast<int>(span - spans);
      const contract::WorkItem first = {piece.unit * heads,
                                        heads,
                                        at,
                                        count,
                                        piece.key_begin,
                                        piece.key_end,
                                        CostOf(piece, item_cycles, key_cycles)};
      for (int unit = 0; unit < piece.units; ++unit) {
        Put(first.head_begin + unit * heads, first.span_begin + unit * count, first, item[unit]);
      }
      item += piece.units;
      const int begin = piece.unit * count;
      const int all = piece.units * count;
      for (int i = 0; i < all; ++i) span[i] = {base + begin + i, piece.ordinal};
      for (int i = 0; before != nullptr && i < all; ++i) span[i].split += before[begin + i];
      span += all;
    }
    item_ = item - out_.items;
    span_ = span - spans;
  }

  // Field by field: a whole copy of a value of which one field was just written waits for the
  // store.
  static void Put(int head_begin, int span_begin, const contract::WorkItem& like,
                  contract::WorkItem& item) {
    item.head_begin = head_begin;
    item.head_count = like.head_count;
    item.span_begin = span_begin;
    item.span_count = like.span_count;
    item.key_begin = like.key_begin;
    item.key_end = like.key_end;
    item.cost = like.cost;
  }
  static void Put(int q_head_begin, const contract::RowBlock& like, contract::RowBlock& block) {
    block.request = like.request;
    block.splits = like.splits;
    block.q_head_begin = q_head_begin;
    block.q_head_count = like.q_head_count;
    block.row_begin = like.row_begin;
    block.row_count = like.row_count;
    block.partial_begin = like.partial_begin;
  }

  static i64 CostOf(const Piece& piece, double item_cycles, double key_cycles) {
    return static_cast<i64>(0.5 + item_cycles +
                            static_cast<double>(piece.key_end - piece.key_begin) * key_cycles);
  }

  // Of several members, or a slice of a group of query heads.
  void WriteItem(const LaunchDraft& launch, const Piece& piece, int unit) {
    const KeyRun& run = in_.runs.runs[static_cast<std::size_t>(piece.run)];
    contract::WorkItem& item = out_.items[item_++];
    item.head_begin = unit / launch.slices * launch.tile.kv_heads;
    item.head_count = launch.tile.kv_heads;
    item.span_begin = static_cast<int>(span_);
    item.key_begin = piece.key_begin;
    item.key_end = piece.key_end;
    item.cost = CostOf(piece, launch.estimate.item_cycles, launch.estimate.key_cycles);
    for (i64 m = run.member_begin; m < run.member_begin + run.member_count; ++m) {
      const RowBlockShape shape = in_.ShapeOf(in_.BlockOf(m).row_class);
      const int first = item.head_begin / shape.heads * shape.slices + unit % launch.slices;
      WriteSpans(piece, m, first, launch.tile.kv_heads / shape.heads, shape.slices);
    }
    item.span_count = static_cast<int>(span_) - item.span_begin;
  }

  // The row blocks first, first + step, ... of the member's block that the piece is a split of.
  void WriteSpans(const Piece& piece, i64 member, int first, int count, int step) {
    const auto m = static_cast<std::size_t>(member);
    const auto block = static_cast<std::size_t>(in_.runs.members[m].block);
    const auto base = static_cast<int>(in_.scratch.row_block_begin[block]);
    const i64 before = in_.scratch.first_begin[m];
    for (int i = 0, at = first; i < count; ++i, at += step) {
      const int split =
          before < 0 ? 0 : in_.scratch.first_split[static_cast<std::size_t>(before + at)];
      out_.spans[span_++] = {base + at, split + piece.ordinal};
    }
  }

  const ListInput in_;
  const PlanDataWriter out_;
  // Entries written.
  i64 block_ = 0;
  i64 merge_ = 0;
  i64 slot_ = 0;
  i64 item_ = 0;
  i64 span_ = 0;
  i64 partials_ = 0;
};

}  // namespace

Status CountLists(const CudaContext& context, const BlockList& blocks, const KeyRuns& runs,
                  CudaScratch& scratch, SplitSummary& summary) {
  summary = scratch.split;
  summary.mode = context.options.split;
  summary.fixed_rows = context.options.fixed_split_rows;
  PlanCounts& counts = scratch.counts;
  ListCounter({context.dims.group(), blocks.blocks, runs, scratch})
      .Count(context.geometry, counts, summary);
  summary.items = counts.items;
  return CheckListCounts(static_cast<double>(std::max({counts.items, counts.blocks, counts.spans})),
                         context.options);
}

void WriteLists(const RequestGeometry& geometry, const ModelDims& dims, const BlockList& blocks,
                const KeyRuns& runs, const CudaScratch& scratch, const PlanDataWriter& out) {
  WriteRequests(geometry, out.requests);
  std::copy(geometry.segment_begins.begin(), geometry.segment_begins.end(), out.segment_begins);
  ListWriter({dims.group(), blocks.blocks, runs, scratch}, out).Write();
}

}  // namespace kvilt::plan::cuda
