// Every tile that could run a query on a device, in one fixed order; feasible or not.
#pragma once

#include <algorithm>
#include <span>

#include "src/plan/cuda/cost.h"
#include "src/plan/cuda/tiles.h"

namespace kvilt::plan::cuda {

// The least number that both divide.
constexpr int CommonMultiple(int a, int b) {
  int n = a;
  while (n % b != 0) n += a;
  return n;
}

// Fills what follows from the rest: threads' registers, reduction slots, stages of the ring.
class TileFitter {
 public:
  explicit TileFitter(const DeviceSpec& spec) : spec_(spec) {}

  void Fit(contract::TileShape& tile) const {
    FitRegisters(tile);
    if (tile.family == static_cast<int>(contract::KernelFamily::kDecode)) {
      tile.q_in_smem = RegistersNeeded(tile) > RegistersOf(tile);
    }
    FitRing(tile);
  }

 private:
  // One pool for the block, split between producers and consumers where the arch can.
  void FitRegisters(contract::TileShape& tile) const {
    const int threads = contract::Threads(tile) * tile.blocks_per_sm;
    const auto pool = static_cast<int>(spec_.registers_per_sm);
    tile.launch_registers = std::min(pool / threads, kMaxRegisters) / 8 * 8;
    if (tile.producer_warps == 0 || !spec_.features.register_split) return;
    const int launch_pool = tile.launch_registers * contract::Threads(tile);
    const int producers = tile.producer_warps * contract::kWarp;
    const int consumers = contract::ConsumerWarps(tile) * contract::kWarp;
    const bool decodes = tile.family == static_cast<int>(contract::KernelFamily::kPrefillWgmma);
    tile.producer_registers = decodes ? 48 : kProducerRegisters;
    tile.consumer_registers =
        std::min((launch_pool - tile.producer_registers * producers) / consumers, 240) / 8 * 8;
  }

  // As many stages as fit, by the ring rule; outputs wait for their reduction in what is left.
  void FitRing(contract::TileShape& tile) const {
    const std::int64_t limit = SmemLimit(tile, spec_);
    const bool decode = tile.family == static_cast<int>(contract::KernelFamily::kDecode);
    if (tile.family == static_cast<int>(contract::KernelFamily::kPrefillWgmma)) {
      tile.operand_stages = 1;
      const std::int64_t one = contract::SmemBytes(tile);
      tile.operand_stages = 2;
      const std::int64_t two = contract::SmemBytes(tile);
      tile.operand_stages = two > limit ? 1 : two + (two - one) > limit ? 2 : 3;
      return;
    }
    // In decode subsets of warps take stages in turn, in prefill they share each.
    const int subsets = decode ? tile.warps_kv : 1;
    const int step = CommonMultiple(subsets, std::max(1, tile.producer_warps));
    const int fewest = contract::RoundUp(contract::LeastStagesOfSubset(tile) * subsets, step);
    const int most = std::max(fewest, contract::RoundUp(4 * subsets, step));
    tile.reduce_slots = tile.warps_kv / 2;
    tile.stages = fewest;
    std::int64_t bytes = contract::SmemBytes(tile);
    while (bytes > limit && tile.reduce_slots > 1) {
      tile.reduce_slots /= 2;
      bytes = contract::SmemBytes(tile);
    }
    const std::int64_t stage = StageBytes(tile) + 4 * 128;  // And what aligning the parts may cost.
    const std::int64_t more = std::max<std::int64_t>(0, limit - bytes) / stage;
    tile.stages += static_cast<int>(std::min<std::int64_t>(more, most - fewest)) / step * step;
  }

  static std::int64_t StageBytes(const contract::TileShape& t) {
    const std::int64_t row = contract::CodeBytes(t.k_format, t.head_dim_qk) +
                             contract::CodeBytes(t.v_format, t.head_dim_vo) +
                             contract::ScaleBytes(t.k_format, t.head_dim_qk) +
                             contract::ScaleBytes(t.v_format, t.head_dim_vo);
    const bool decode = t.family == static_cast<int>(contract::KernelFamily::kDecode);
    const int places =
        decode ? 0 : t.kv_rows * contract::kKeyPlaceBytes + contract::kStageFlagBytes;
    return row * t.kv_rows * t.kv_heads + places + 16;
  }

  const DeviceSpec& spec_;
};

namespace internal {

inline contract::TileShape BaseTile(const TileQuery& query, contract::KernelFamily family) {
  contract::TileShape tile;
  tile.family = static_cast<int>(family);
  tile.k_format = query.k_format;
  tile.v_format = query.v_format;
  tile.head_dim_qk = query.head_dim_qk;
  tile.head_dim_vo = query.head_dim_vo;
  tile.q_parts = query.q_parts;
  tile.k_parts = query.k_parts;
  return tile;
}

// `bulk`: the arch and the family can.
inline void SetCopies(const TileQuery& query, bool bulk, contract::TileShape& tile) {
  tile.copy_bytes = CopyBytes(query, tile);
  tile.bulk_copy = bulk && tile.copy_bytes == 16 && ReadsStretches(query, tile);
}

// Resident blocks per SM worth trying: persistent blocks with producers own their SM, smaller ones
// without hide each other's latencies.
inline std::span<const int> BlocksToTry(const DeviceSpec& spec) {
  static constexpr int kBlocks[] = {1, 2};
  return {kBlocks, spec.features.register_split ? std::size_t{1} : std::size_t{2}};
}

// The fewest warps side by side over the output that have the registers, `warps` consumers in all
// or, with 0, as many over keys as `least_warps` asks for; the most if none has. False where no
// number divides the output.
inline bool SpreadOverOutput(const TileFitter& fitter, int warps, int least_warps,
                             contract::TileShape& tile) {
  bool found = false;
  contract::TileShape candidate = tile;
  for (candidate.warps_vo = 1; candidate.warps_vo <= 4; candidate.warps_vo *= 2) {
    const int subset = contract::SubsetWarps(candidate);
    // The last warp must have something to do.
    if ((candidate.warps_vo - 1) * contract::DimsPerWarp(candidate) >= tile.head_dim_vo) break;
    if (warps > 0 && warps % subset != 0) break;
    candidate.warps_kv =
        warps > 0 ? warps / subset : std::clamp(least_warps / subset, 1, tile.kv_rows / 16);
    fitter.Fit(candidate);
    tile = candidate;
    found = true;
    if (RegistersNeeded(tile) <= RegistersOf(tile)) break;
  }
  return found;
}

// Few rows: the block's warps spread over KV heads, rows, output dims and stages.
template <class Visit>
void DecodeTiles(const TileQuery& query, const DeviceSpec& spec, Visit&& visit) {
  if (query.k_format == contract::kAnyFormat) return;  // Its fragments are those of one format.
  const TileFitter fitter(spec);
  contract::TileShape tile = BaseTile(query, contract::KernelFamily::kDecode);
  const bool produces = spec.features.bulk_copy;
  // Fewer than four warps only where the stages of four have no room.
  const auto with_warps = [&](int warps) {
    bool roomy = false;
    tile.producer_warps = produces ? std::min(4, 2 * warps) : 0;
    for (const int blocks : BlocksToTry(spec)) {
      for (const int kv_rows : {32, 16}) {
        tile.kv_rows = kv_rows;
        tile.blocks_per_sm = blocks;
        SetCopies(query, produces, tile);
        if (!SpreadOverOutput(fitter, warps, 0, tile)) continue;
        roomy = roomy || contract::SmemBytes(tile) <= SmemLimit(tile, spec);
        visit(tile);
      }
    }
    return roomy;
  };
  for (const int q_rows : {8, 16, 32, 64}) {
    if (q_rows > std::max(8, 2 * query.rows - 1)) break;
    tile.q_rows = q_rows;
    tile.warps_rows = std::max(1, q_rows / 16);
    for (const int kv_heads : {1, 2, 4, 8}) {
      if (query.kv_heads % kv_heads != 0) continue;
      tile.kv_heads = kv_heads;
      with_warps(16);
      with_warps(8);
      if (!with_warps(4) && !with_warps(2)) with_warps(1);
    }
  }
}

// Many rows over 16-bit operand tiles, by mma.sync. At least four warps share the decoding where
// the stages that they take turns on have room.
template <class Visit>
void PrefillTiles(const TileQuery& query, const DeviceSpec& spec, Visit&& visit) {
  const TileFitter fitter(spec);
  contract::TileShape tile = BaseTile(query, contract::KernelFamily::kPrefill);
  tile.q_in_smem = 1;
  const bool decodes = !contract::Is16Bit(query.k_format) || !contract::Is16Bit(query.v_format);
  tile.operand_stages = decodes || query.k_parts > 1 ? 1 : 0;
  const auto with_warps = [&](int least_warps) {
    bool roomy = false;
    for (const int kv_rows : {64, 32, 16}) {
      for (const int blocks : {1, 2, 3, 4}) {
        tile.kv_rows = kv_rows;
        tile.blocks_per_sm = blocks;
        SetCopies(query, false, tile);
        if (!SpreadOverOutput(fitter, 0, least_warps, tile)) continue;
        roomy = roomy || contract::SmemBytes(tile) <= SmemLimit(tile, spec);
        visit(tile);
      }
    }
    return roomy;
  };
  for (const int q_rows : {16, 32, 64, 128}) {
    if (q_rows > std::max(16, 2 * query.rows - 1)) break;
    tile.q_rows = q_rows;
    tile.warps_rows = q_rows / 16;
    if (!with_warps(4) && !with_warps(2)) with_warps(1);
  }
}

// Many rows by wgmma: warpgroups of 64 rows, warps that only decode or copy.
template <class Visit>
void WgmmaTiles(const TileQuery& query, const DeviceSpec& spec, Visit&& visit) {
  if (query.k_format == contract::kAnyFormat) return;
  const TileFitter fitter(spec);
  contract::TileShape tile = BaseTile(query, contract::KernelFamily::kPrefillWgmma);
  const bool decodes = !contract::Is16Bit(query.k_format) || !contract::Is16Bit(query.v_format);
  tile.q_in_smem = 1;
  tile.producer_warps = decodes ? 8 : 4;
  for (const int q_rows : {64, 128}) {
    if (q_rows > std::max(64, 2 * query.rows - 1)) break;
    for (const int kv_rows : {128, 64, 32}) {
      tile.q_rows = q_rows;
      tile.kv_rows = kv_rows;
      tile.warps_rows = q_rows / 16;
      SetCopies(query, false, tile);
      if (SpreadOverOutput(fitter, 0, 1, tile)) visit(tile);
    }
  }
}

}  // namespace internal

template <class Visit>
void ForEachTile(const TileQuery& query, const DeviceSpec& spec, Visit&& visit) {
  internal::DecodeTiles(query, spec, visit);
  internal::PrefillTiles(query, spec, visit);
  internal::WgmmaTiles(query, spec, visit);
}

}  // namespace kvilt::plan::cuda
