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
  double merge_us = 0;
  int busy_blocks = 0;

  int units(int kv_heads) const { return kv_heads / tile.kv_heads * slices; }
};
inline constexpr int kAnyFormats = -1;

// A stretch of a run's keys for one unit (KV heads of a tile, slice), on one block of the grid.
struct Piece {
  int run = 0;
  int unit = 0;
  int slot = 0;
  int ordinal = 0;  // Among the pieces of its run and unit, in key order.
  std::int64_t key_begin = 0;
  std::int64_t key_end = 0;
};

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

  std::vector<Piece> pieces;             // Of all launches, each launch's by slot.
  std::vector<std::size_t> piece_begin;  // [launches + 1]
  std::vector<Piece> trial;
  std::vector<Piece> dealt;
  std::vector<int> piece_count;         // By run and unit.
  std::vector<std::size_t> unit_begin;  // [runs + 1]
  std::vector<std::int64_t> cuts;
  std::vector<std::pair<double, int>> order;
  std::vector<std::pair<double, int>> heap;
  std::vector<int> slot_count;

  std::array<RowBlockShape, kRowClasses> shapes;
  std::vector<std::int64_t> row_block_begin;  // [blocks + 1]
  std::vector<int> first_split;               // By member, then granule and slice.
  std::vector<std::int64_t> first_begin;      // [members + 1]
  std::vector<int> row_block_splits;
  std::int64_t vectors = 0;       // Of all partials.
  std::int64_t cascade_rows = 0;  // Most query rows of a cascade, 0 = none.
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

// The lists that kernels walk.
Status BuildLists(const CudaContext& context, const BlockList& blocks, const KeyRuns& runs,
                  CudaScratch& scratch, PlanLists& lists);

}  // namespace kvilt::plan::cuda
