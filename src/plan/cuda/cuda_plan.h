// GPU planning after validation: tiles for each class of rows, blocks of the grid for all work.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kvilt/attention.h"
#include "src/plan/cuda/tiles.h"
#include "src/plan/key_runs.h"
#include "src/plan/plan_data.h"
#include "src/plan/row_blocks.h"
#include "src/plan/validate.h"

namespace kvilt::plan::cuda {

// One kernel launch while it is planned.
struct LaunchDraft {
  int row_class = 0;     // Of row_blocks.h.
  int formats = 0;       // Index in CudaScratch::pairs, kAnyFormats for all of them in one tile.
  bool cascade = false;  // Serves shared segments for several requests.
  TileQuery query;
  contract::TileShape tile;
  TileEstimate estimate;

  int grid = 0;
  int slices = 1;  // Blocks that share a KV head's group of query heads, where it exceeds the tile.
  std::vector<int> runs;
  double makespan_cycles = 0;  // Of the busiest block.
  double total_cycles = 0;     // Of all pieces, with the set-ups that cuts add.
  double merge_us = 0;
  int busy_blocks = 0;
  std::int64_t items = 0;

  int units(int kv_heads) const { return kv_heads / tile.kv_heads * slices; }
};
inline constexpr int kAnyFormats = -1;

// A stretch of a run's keys on one block of the grid, for one unit (KV heads of a tile, slice) or
// several in a row: an item each.
struct Piece {
  int run = 0;
  int unit = 0;
  int units = 1;
  int slot = 0;
  int ordinal = 0;  // Among the pieces of its run and unit, in key order.
  std::int64_t key_begin = 0;
  std::int64_t key_end = 0;
};

// Units of a run that are cut; all others are one piece. At most about one for each block of the
// grid, so what follows from cuts is kept for these alone.
struct CutUnit {
  int run = 0;
  int unit = 0;  // kAllUnits: all of the run, alike.
  int pieces = 0;
};
inline constexpr int kAllUnits = -1;

// Row blocks of the plan data: a planned block's rows for `heads` KV heads, or for one slice of the
// group of one. All pieces of the block's runs cover whole row blocks.
struct RowBlockShape {
  int heads = 1;
  int slices = 1;
};

struct CudaScratch {
  struct Pair {
    int k = 0;  // contract::Format
    int v = 0;
  };
  std::vector<Pair> pairs;
  std::vector<int> segment_formats;  // Index of pairs, by segment.
  std::vector<LaunchDraft> launches;
  std::size_t launch_count = 0;  // Of those in use; the rest keep their memory.
  std::vector<int> run_launch;
  RowTiling tiling;

  std::vector<Piece> pieces;             // Of all launches, each launch's by slot; may be longer.
  std::vector<std::size_t> piece_begin;  // [launches + 1]
  std::vector<CutUnit> cut_units;        // Of all launches.
  std::vector<Piece> trial;
  std::vector<std::int64_t> cuts;
  std::vector<std::pair<double, int>> order;  // Cost, first of so many pieces of the trial.
  std::vector<std::pair<double, int>> heap;
  std::vector<int> slot_count;

  std::array<RowBlockShape, kRowClasses> shapes;
  std::array<int, kRowClasses> row_blocks{};  // Of a planned block of the class.
  std::vector<std::int64_t> row_block_begin;  // [blocks + 1]
  std::vector<std::int64_t> split_begin;      // [blocks], in row_block_splits; -1: 1 split each.
  std::vector<int> row_block_splits;          // Of the row blocks of the other blocks.
  std::vector<std::int64_t> first_begin;      // [members], in first_split; -1: zeros.
  std::vector<int> first_split;               // By member, then row block.
  std::vector<std::int64_t> pieces_begin;     // [runs], in unit_pieces; -1: no unit is cut.
  std::vector<int> unit_pieces;               // Of the units of runs with a cut.
  PlanCounts counts;                          // Of the lists.
  std::int64_t vectors = 0;                   // Of all partials.
  SplitSummary split;                         // But for the balance.
  std::int64_t cascade_rows = 0;              // Most query rows of a cascade, 0 = none.
};

struct CudaContext {
  const AttentionRequest& request;
  const RequestGeometry& geometry;
  const ModelDims& dims;
  const DeviceSpec& spec;
  const PlanOptions& options;
};

// Fills scratch.launches for the classes and formats of the request, and scratch.tiling.
// Errors: kUnsupported, when no tile fits or the asked one does not, with numbers.
// `any_formats`: one tile for all formats, so that no row needs a partial.
Status ChooseLaunches(const CudaContext& context, bool any_formats, CudaScratch& scratch);

// The launches of an existing plan, for a request of the same kind. Errors: kFailedPrecondition
// when the request has a class of query lengths, or needs narrower copies, that the plan has not.
Status RestoreLaunches(const CudaContext& context, const PlanDataView& view, CudaScratch& scratch);

// Adds the launches that cascades need; the most query rows that one may have, 0 = none.
std::int64_t ChooseCascadeLaunches(const CudaContext& context, CudaScratch& scratch);

// Cuts the runs into pieces and gives each a block of the grid, within the workspace in kAuto;
// false when it cannot be kept even unsplit.
bool Partition(const CudaContext& context, const BlockList& blocks, const KeyRuns& runs,
               CudaScratch& scratch);

// How long the lists are that kernels walk, into scratch.counts, and what they amount to but for
// the balance. Errors: lists too long for plan data.
Status CountLists(const CudaContext& context, const BlockList& blocks, const KeyRuns& runs,
                  CudaScratch& scratch, SplitSummary& summary);

// Writes the lists in place. REQUIRES: CountLists before, and room for scratch.counts.
void WriteLists(const RequestGeometry& geometry, const ModelDims& dims, const BlockList& blocks,
                const KeyRuns& runs, const CudaScratch& scratch, const PlanDataWriter& out);

}  // namespace kvilt::plan::cuda
