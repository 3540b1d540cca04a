// Which tile runs a class of work on a GPU, and why not another.
//
// All candidates come from one loop; each is feasible or has a refusal with its numbers; the
// cheapest feasible one by the cost model is taken, the first of equals. Pure; allocates nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kvilt/device.h"
#include "kvilt/kv_cache.h"
#include "src/contract/tile_shape.h"

namespace kvilt::plan::cuda {

// Work of one launch, as far as tiles depend on it.
struct TileQuery {
  int rows = 0;   // Query rows x group that want to share a read of the keys, at most kMostRows.
  int group = 1;  // Query heads per KV head.
  int kv_heads = 1;
  int head_dim_qk = 0;
  int head_dim_vo = 0;
  int k_format = 0;  // contract::Format
  int v_format = 0;
  int q_parts = 1;  // As in TileShape.
  int k_parts = 1;
  // How the caches lie in memory: never changes a bit of the result.
  int copy_bytes = 16;       // The narrowest copy of a head's codes and scales.
  int page_copy_bytes = 16;  // The same for whole pages of all heads.
  std::int64_t page_size = 16;
  bool whole_heads = true;  // HND: a page of one head is one stretch.
  bool whole_pages = true;  // A page of all heads is one stretch, in HND and NHD.
  // How much there is; zeros where bits must not depend on it (kFixed).
  std::int64_t blocks = 1;  // Row blocks.
  std::int64_t keys = 0;    // Of all row blocks together.
  // Limits on the choice.
  int family = -1;        // contract::KernelFamily, -1 = any.
  int least_q_rows = 0;   // All rows in one tile: what several requests read together.
  bool one_head = false;  // One KV head per block.
  bool unbuilt = false;   // Also families whose kernels are still to come (tests of the model).

  friend bool operator==(const TileQuery&, const TileQuery&) = default;
};

inline constexpr int kMostRows = 128;
// One decode tile holds so many: the operand tiles of the other families would only add to the
// work, so they are not considered.
inline constexpr int kFewRows = 8;

// Why a tile is passed over.
enum class TileReason : std::uint8_t {
  kFeasible = 0,
  kNeedsFeature,  // The arch lacks what the family needs.
  kNoKernel,      // The family's kernel is not part of this version.
  kSmem,          // need > limit, bytes of a block.
  kRegisters,     // need > limit, of a consumer thread.
  kThreads,       // need > limit, of a block.
  kBlocks,        // need > limit, resident on an SM.
  kRing,          // No number of stages fits the ring rule: need bytes for the fewest.
  kNotAsked,      // The limits of the query exclude it.
};

struct TileCheck {
  TileReason reason = TileReason::kFeasible;
  std::int64_t need = 0;
  std::int64_t limit = 0;
};

// Modelled times of one launch, microseconds.
struct TileEstimate {
  double us = 0;         // Launch to merge.
  double memory_us = 0;  // KV bytes at the device's rate.
  double issue_us = 0;   // Instructions.
  double mma_us = 0;
  double copy_us = 0;  // Issuing bulk copies.
  double merge_us = 0;
  // Of one block, what partition counts in: cycles per key of an item, cycles beside them.
  double key_cycles = 0;
  double item_cycles = 0;
};

// Whether the heads of one block in one page lie in stretches of whole pages, not row by row.
constexpr bool ReadsStretches(const TileQuery& query, const contract::TileShape& tile) {
  return query.whole_heads || (query.whole_pages && tile.kv_heads == query.kv_heads);
}

// The narrowest copy of codes and scales that the tile needs.
constexpr int CopyBytes(const TileQuery& query, const contract::TileShape& tile) {
  const bool pages = query.whole_pages && tile.kv_heads == query.kv_heads;
  return pages ? query.page_copy_bytes : query.copy_bytes;
}

// Bytes of shared memory that each resident block may have.
std::int64_t SmemLimit(const contract::TileShape& tile, const DeviceSpec& spec);

TileCheck CheckTile(const TileQuery& query, const contract::TileShape& tile,
                    const DeviceSpec& spec);
TileEstimate EstimateTile(const TileQuery& query, const contract::TileShape& tile,
                          const DeviceSpec& spec);

// Registers that a consumer thread needs by the model, and those that it has.
int RegistersNeeded(const contract::TileShape& tile);
int RegistersOf(const contract::TileShape& tile);

struct ChosenTile {
  contract::TileShape tile;
  TileEstimate estimate;
};
// Empty when no tile fits.
// `name`: only the tile of this name, when not empty.
std::optional<ChosenTile> ChooseTile(const TileQuery& query, const DeviceSpec& spec,
                                     std::string_view name = {});

// Narrows a query's layout to what a segment's sides allow: copy widths, page size, stretches.
void AddSegmentLayout(const Segment& segment, TileQuery& query);
std::string_view FormatName(int format);

// "decode 8x32 d128/128 h2 w16 s16"
std::string TileName(const contract::TileShape& tile);
// "cuda/decode", "cuda/prefill", "cuda/prefill_wgmma"
std::string_view PathName(contract::KernelFamily family);
// The family of a path's name, -1 for "" and unknown ones; and the names of those with kernels.
int FamilyOfPath(std::string_view name);
std::string BuiltPaths();
// What a user can act on.
std::string ReasonText(const TileCheck& check, const contract::TileShape& tile,
                       const DeviceSpec& spec);

}  // namespace kvilt::plan::cuda
