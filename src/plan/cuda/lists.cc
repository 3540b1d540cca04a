#include <algorithm>

#include "src/core/check.h"
#include "src/plan/cuda/cost.h"
#include "src/plan/cuda/cuda_plan.h"
#include "src/plan/cuda/numbering.h"
#include "src/plan/work_list.h"

namespace kvilt::plan::cuda {
namespace {

using contract::i64;

class ListBuilder {
 public:
  ListBuilder(const CudaContext& context, const BlockList& blocks, const KeyRuns& runs,
              CudaScratch& scratch, PlanLists& lists)
      : context_(context), blocks_(blocks), runs_(runs), scratch_(scratch), lists_(lists) {}

  Status Build() {
    lists_.clear();
    KVILT_RETURN_IF_ERROR(CheckListCounts(
        static_cast<double>(std::max({scratch_.pieces.size(), scratch_.row_block_splits.size()})),
        context_.options));
    FillRequests(context_.geometry, lists_);
    AddBlocks();
    KVILT_RETURN_IF_ERROR(AddLaunches());
    AddMerges();
    FillHeader(context_.geometry, lists_);
    return {};
  }

 private:
  RowBlockShape ShapeOf(int row_class) const {
    return scratch_.shapes[static_cast<std::size_t>(row_class)];
  }

  void AddBlocks() {
    lists_.blocks.reserve(scratch_.row_block_splits.size());
    const int group = context_.dims.group();
    for (std::size_t b = 0; b < blocks_.blocks.size(); ++b) {
      const PlannedBlock& planned = blocks_.blocks[b];
      const RowBlockShape shape = ShapeOf(planned.row_class);
      for (i64 at = scratch_.row_block_begin[b]; at < scratch_.row_block_begin[b + 1]; ++at) {
        const auto index = static_cast<int>(at - scratch_.row_block_begin[b]);
        const int head = index / shape.slices * shape.heads;
        const int slice = index % shape.slices;
        contract::RowBlock& block = lists_.blocks.emplace_back();
        block.request = planned.request;
        block.splits = scratch_.row_block_splits[static_cast<std::size_t>(at)];
        block.q_head_begin = head * group;
        block.q_head_count = shape.heads * group;
        if (shape.slices > 1) {
          block.q_head_begin +=
              group / shape.slices * slice + std::min(slice, group % shape.slices);
          block.q_head_count = group / shape.slices + (slice < group % shape.slices);
        }
        block.row_begin = planned.row_begin;
        block.row_count = planned.row_count;
      }
    }
    PlacePartials(lists_);
  }

  Status AddLaunches() {
    lists_.items.reserve(scratch_.pieces.size());
    lists_.spans.reserve(scratch_.pieces.size());
    for (std::size_t l = 0; l < scratch_.launch_count; ++l) {
      const LaunchDraft& launch = scratch_.launches[l];
      contract::LaunchInfo& info = lists_.launches.emplace_back();
      info.tile = launch.tile;
      info.grid = launch.grid;
      info.slot_begin = static_cast<int>(lists_.slot_begins.size());
      info.row_class = launch.row_class;
      info.cascade = launch.cascade;
      const RowBlockShape shape = ShapeOf(launch.row_class);
      info.block_heads = shape.heads;
      int slot = 0;
      lists_.slot_begins.push_back(static_cast<int>(lists_.items.size()));
      for (std::size_t p = scratch_.piece_begin[l]; p < scratch_.piece_begin[l + 1]; ++p) {
        const Piece& piece = scratch_.pieces[p];
        for (; slot < piece.slot; ++slot) {
          lists_.slot_begins.push_back(static_cast<int>(lists_.items.size()));
        }
        AddItem(launch, piece);
      }
      for (; slot < launch.grid; ++slot) {
        lists_.slot_begins.push_back(static_cast<int>(lists_.items.size()));
      }
    }
    return CheckListCounts(static_cast<double>(lists_.spans.size()), context_.options);
  }

  void AddItem(const LaunchDraft& launch, const Piece& piece) {
    const KeyRun& run = runs_.runs[static_cast<std::size_t>(piece.run)];
    contract::WorkItem& item = lists_.items.emplace_back();
    item.head_begin = piece.unit / launch.slices * launch.tile.kv_heads;
    item.head_count = launch.tile.kv_heads;
    item.span_begin = static_cast<int>(lists_.spans.size());
    item.key_begin = piece.key_begin;
    item.key_end = piece.key_end;
    item.cost = static_cast<i64>(0.5 + launch.estimate.item_cycles +
                                 static_cast<double>(piece.key_end - piece.key_begin) *
                                     launch.estimate.key_cycles);
    for (i64 m = run.member_begin; m < run.member_begin + run.member_count; ++m) {
      AddSpans(launch, piece, item.head_begin, static_cast<std::size_t>(m));
    }
    item.span_count = static_cast<int>(lists_.spans.size()) - item.span_begin;
  }

  void AddSpans(const LaunchDraft& launch, const Piece& piece, int head_begin, std::size_t member) {
    const auto block = static_cast<std::size_t>(runs_.members[member].block);
    const RowBlockShape shape = ShapeOf(blocks_.blocks[block].row_class);
    const int first = head_begin / shape.heads * shape.slices + piece.unit % launch.slices;
    const int count = launch.tile.kv_heads / shape.heads;
    for (int i = 0; i < count; ++i) {
      const int at = first + i * shape.slices;
      const auto split = static_cast<std::size_t>(scratch_.first_begin[member] + at);
      lists_.spans.push_back({static_cast<int>(scratch_.row_block_begin[block]) + at,
                              scratch_.first_split[split] + piece.ordinal});
    }
  }

  void AddMerges() {
    for (std::size_t b = 0; b < lists_.blocks.size(); ++b) {
      const contract::RowBlock& block = lists_.blocks[b];
      if (block.splits == 1) continue;
      for (i64 vector = 0; vector < block.vectors(); vector += kMergeVectors) {
        lists_.merges.push_back({static_cast<int>(b), 0, vector,
                                 std::min<i64>(kMergeVectors, block.vectors() - vector)});
      }
    }
  }

  const CudaContext& context_;
  const BlockList& blocks_;
  const KeyRuns& runs_;
  CudaScratch& scratch_;
  PlanLists& lists_;
};

}  // namespace

Status BuildLists(const CudaContext& context, const BlockList& blocks, const KeyRuns& runs,
                  CudaScratch& scratch, PlanLists& lists) {
  return ListBuilder(context, blocks, runs, scratch, lists).Build();
}

}  // namespace kvilt::plan::cuda
