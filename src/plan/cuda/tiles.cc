#include "src/plan/cuda/tiles.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/plan/cuda/cost.h"
#include "src/plan/cuda/tile_candidates.h"

namespace kvilt::plan::cuda {
namespace {

using contract::KernelFamily;
using contract::TileShape;

constexpr int kMaxThreads = 1024;
constexpr KernelFamily kFamilies[] = {KernelFamily::kDecode, KernelFamily::kPrefill,
                                      KernelFamily::kPrefillWgmma};

KernelFamily FamilyOf(const TileShape& tile) { return static_cast<KernelFamily>(tile.family); }

// A warpgroup of wgmma is four warps of 16 rows each.
bool HasFeatures(const TileShape& tile, const DeviceSpec& spec) {
  if (FamilyOf(tile) == KernelFamily::kPrefillWgmma) return spec.features.wgmma;
  return spec.features.async_copy;
}

bool Asked(const TileQuery& query, const TileShape& tile) {
  return (query.family < 0 || query.family == tile.family) && tile.q_rows >= query.least_q_rows &&
         (!query.one_head || tile.kv_heads == 1);
}

}  // namespace

std::int64_t SmemLimit(const TileShape& tile, const DeviceSpec& spec) {
  return std::min(spec.smem_per_block_bytes,
                  spec.smem_per_sm_bytes / tile.blocks_per_sm - spec.smem_reserved_bytes);
}

int RegistersOf(const TileShape& tile) {
  return tile.consumer_registers > 0 ? tile.consumer_registers : tile.launch_registers;
}

int RegistersNeeded(const TileShape& tile) {
  if (FamilyOf(tile) == KernelFamily::kPrefill) {
    const int wide = contract::DimsPerWarp(tile) > 128 ? kPrefillWideRegisters : 0;
    return kPrefillBaseRegisters + wide +
           static_cast<int>(kPrefillPerAccumulator * contract::AccumulatorRegisters(tile));
  }
  const int base =
      FamilyOf(tile) == KernelFamily::kDecode ? kDecodeBaseRegisters : kWgmmaBaseRegisters;
  return base + contract::AccumulatorRegisters(tile) + contract::QueryRegisters(tile);
}

TileCheck CheckTile(const TileQuery& query, const TileShape& tile, const DeviceSpec& spec) {
  if (!Asked(query, tile)) return {TileReason::kNotAsked};
  if (!HasFeatures(tile, spec)) return {TileReason::kNeedsFeature};
  if (!query.unbuilt && !contract::HasKernel(FamilyOf(tile))) return {TileReason::kNoKernel};
  const int threads = contract::Threads(tile);
  if (threads > kMaxThreads) return {TileReason::kThreads, threads, kMaxThreads};
  if (threads * tile.blocks_per_sm > spec.threads_per_sm) {
    return {TileReason::kThreads, threads * tile.blocks_per_sm, spec.threads_per_sm};
  }
  if (tile.blocks_per_sm > spec.blocks_per_sm) {
    return {TileReason::kBlocks, tile.blocks_per_sm, spec.blocks_per_sm};
  }
  if (RegistersNeeded(tile) > RegistersOf(tile)) {
    return {TileReason::kRegisters, RegistersNeeded(tile), RegistersOf(tile)};
  }
  const std::int64_t limit = SmemLimit(tile, spec);
  if (contract::SmemBytes(tile) > limit) {
    return {TileReason::kSmem, contract::SmemBytes(tile), limit};
  }
  if (!contract::RingRuleHolds(tile)) return {TileReason::kRing, tile.stages, tile.warps_kv};
  return {};
}

std::optional<ChosenTile> ChooseTile(const TileQuery& query, const DeviceSpec& spec,
                                     std::string_view name) {
  std::optional<ChosenTile> best;
  const auto consider = [&](const TileShape& tile) {
    if (!name.empty() && TileName(tile) != name) return;
    if (CheckTile(query, tile, spec).reason != TileReason::kFeasible) return;
    const TileEstimate estimate = EstimateTile(query, tile, spec);
    if (!best || estimate.us < best->estimate.us) best = {tile, estimate};
  };
  internal::DecodeTiles(query, spec, consider);
  if (best && query.rows <= kFewRows && name.empty()) return best;
  internal::PrefillTiles(query, spec, consider);
  internal::WgmmaTiles(query, spec, consider);
  return best;
}

std::string_view PathName(KernelFamily family) {
  switch (family) {
    case KernelFamily::kDecode:
      return "cuda/decode";
    case KernelFamily::kPrefill:
      return "cuda/prefill";
    case KernelFamily::kPrefillWgmma:
      return "cuda/prefill_wgmma";
  }
  return "unknown";
}

int FamilyOfPath(std::string_view name) {
  for (const KernelFamily family : kFamilies) {
    if (name == PathName(family)) return static_cast<int>(family);
  }
  return -1;
}

std::string BuiltPaths() {
  std::string paths;
  for (const KernelFamily family : kFamilies) {
    if (!contract::HasKernel(family)) continue;
    if (!paths.empty()) paths += ", ";
    paths += PathName(family);
  }
  return paths;
}

std::string TileName(const TileShape& tile) {
  std::string name = fmt::format("{} {}x{} d{}/{}", PathName(FamilyOf(tile)).substr(5), tile.q_rows,
                                 tile.kv_rows, tile.head_dim_qk, tile.head_dim_vo);
  if (tile.kv_heads > 1) name += fmt::format(" {} heads", tile.kv_heads);
  name += fmt::format(" {} warps", contract::ConsumerWarps(tile));
  if (tile.producer_warps > 0) name += fmt::format("+{}", tile.producer_warps);
  name += fmt::format(" {} stages", std::max(tile.stages, tile.operand_stages));
  if (tile.blocks_per_sm > 1) name += fmt::format(" {}/SM", tile.blocks_per_sm);
  return name;
}

std::string ReasonText(const TileCheck& check, const TileShape& tile, const DeviceSpec& spec) {
  switch (check.reason) {
    case TileReason::kFeasible:
      return "feasible";
    case TileReason::kNeedsFeature:
      return fmt::format("needs {}, which {} has not",
                         FamilyOf(tile) == KernelFamily::kPrefillWgmma ? "wgmma" : "cp.async",
                         spec.name);
    case TileReason::kNoKernel:
      return fmt::format("the kernel of {} is not part of this version", PathName(FamilyOf(tile)));
    case TileReason::kSmem:
      return fmt::format(
          "needs {} bytes of shared memory in a block, {} allows {}{}", check.need, spec.name,
          check.limit,
          tile.blocks_per_sm > 1 ? fmt::format(" with {} blocks per SM", tile.blocks_per_sm) : "");
    case TileReason::kRegisters:
      return fmt::format("needs about {} registers per thread, {} threads leave {}", check.need,
                         contract::Threads(tile) * tile.blocks_per_sm, check.limit);
    case TileReason::kThreads:
      return fmt::format("{} threads, accepted at most {}", check.need, check.limit);
    case TileReason::kBlocks:
      return fmt::format("{} blocks per SM, {} holds {}", check.need, spec.name, check.limit);
    case TileReason::kRing:
      return fmt::format("{} stages for {} groups of warps break the ring rule", check.need,
                         check.limit);
    case TileReason::kNotAsked:
      return "not what was asked for (path, rows or heads)";
  }
  return "unknown";
}

}  // namespace kvilt::plan::cuda
