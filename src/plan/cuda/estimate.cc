// What a tile costs by the model of cost.h. One formula for choosing tiles, cutting work and
// explaining plans.
#include <algorithm>

#include "src/plan/cuda/cost.h"
#include "src/plan/cuda/tiles.h"

namespace kvilt::plan::cuda {
namespace {

using contract::KernelFamily;
using contract::TileShape;

// Bytes of one key of one KV head, K and V, scales included.
double KeyBytes(const TileShape& t) {
  return contract::CodeBytes(t.k_format, t.head_dim_qk) +
         contract::CodeBytes(t.v_format, t.head_dim_vo) +
         contract::ScaleBytes(t.k_format, t.head_dim_qk) +
         contract::ScaleBytes(t.v_format, t.head_dim_vo);
}

// Bytes of K and V that a block has in flight.
double BytesInFlight(const TileShape& t) {
  const int stages = t.stages > 0 ? t.stages : t.operand_stages;
  return stages * t.kv_rows * t.kv_heads * KeyBytes(t);
}

class Model {
 public:
  Model(const TileQuery& query, const TileShape& tile, const DeviceSpec& spec)
      : query_(query), t_(tile), spec_(spec) {}

  // SM cycles for one key of one KV head and q_rows query rows, by resource.
  double MemoryCycles() const {
    const double efficiency =
        ReadsStretches(query_, t_) ? kReadEfficiency : kReadEfficiency * kRowwiseReads;
    const double rate =  // Bytes per cycle of one SM.
        spec_.read_gb_per_s * efficiency / spec_.clock_ghz / spec_.slots;
    const double in_flight = BytesInFlight(t_) * t_.blocks_per_sm;
    return KeyBytes(t_) / rate * (1 + kHalfRateBytes / in_flight);
  }
  double IssueCycles() const {
    double rate = kInstructionsPerCycle;
    if (family() == KernelFamily::kPrefill) {
      const int warps = contract::ConsumerWarps(t_) * t_.blocks_per_sm;
      rate = std::min(rate, kInstructionsPerWarp * warps);
    }
    return Instructions() / contract::kWarp / rate;
  }
  double MmaCycles() const {
    const double flops = 2.0 * t_.q_rows * (t_.head_dim_qk * QkPasses() + t_.head_dim_vo);
    if (family() == KernelFamily::kPrefillWgmma) {
      return flops / (spec_.wgmma_flops_per_clock * kWgmmaEfficiency);
    }
    return flops / (spec_.mma_flops_per_clock * kMmaEfficiency);
  }
  double CopyCycles() const {
    if (!t_.bulk_copy) return 0;
    const double scales = contract::ScaleBytes(t_.k_format, t_.head_dim_qk) > 0 ? 1 : 0;
    const double v_scales = contract::ScaleBytes(t_.v_format, t_.head_dim_vo) > 0 ? 1 : 0;
    const auto keys = static_cast<double>(std::min<std::int64_t>(query_.page_size, t_.kv_rows));
    const double stretches = query_.whole_pages ? 1 : t_.kv_heads;
    return (2 + scales + v_scales) * stretches * kBulkCopyCycles /
           (keys * t_.kv_heads * t_.producer_warps);
  }

  // Work of all rows: each tile of q_rows reads the keys again.
  double KeyHeads() const { return static_cast<double>(query_.keys) * query_.kv_heads * Passes(); }
  double Passes() const { return contract::CeilDiv(query_.rows, t_.q_rows); }

  // A block's cycles for one key of all its KV heads; resident blocks share the SM.
  double BlockKeyCycles() const {
    const double one = std::max({MemoryCycles(), IssueCycles(), MmaCycles(), CopyCycles()});
    return one * t_.kv_heads * t_.blocks_per_sm;
  }

  double MergeUs() const {
    const double grid = static_cast<double>(spec_.slots) * t_.blocks_per_sm;
    const double items =
        static_cast<double>(query_.blocks) * Passes() * query_.kv_heads / t_.kv_heads;
    if (items >= 2 * grid || query_.keys == 0) return 0;
    const double splits = std::min(grid / items, static_cast<double>(query_.keys) /
                                                     static_cast<double>(query_.blocks) /
                                                     static_cast<double>(kMinSplitKeys));
    if (splits <= 1) return 0;
    const double bytes =
        2.0 * grid * t_.kv_heads * std::min(t_.q_rows, query_.rows) * (t_.head_dim_vo + 3) * 4;
    return kMergeUs + splits * kMergeSplitUs + bytes / (spec_.read_gb_per_s * 1e3);
  }

  double ItemCycles() const {
    // Loading q and writing the rows grow with both.
    const double values =
        static_cast<double>(t_.kv_heads) * t_.q_rows * (t_.head_dim_qk + t_.head_dim_vo);
    return kItemCycles + values / 16;
  }

  double ToUs(double cycles) const { return cycles / (spec_.clock_ghz * 1e3); }

 private:
  KernelFamily family() const { return static_cast<KernelFamily>(t_.family); }

  // Each of warps_vo computes the scores of its rows again; wgmma's warpgroups will share.
  double QkPasses() const {
    if (family() == KernelFamily::kPrefillWgmma) return 1;
    return t_.warps_vo * t_.q_parts * (t_.k_parts > 1 ? 1.5 : 1.0);  // 3 of the 4 products.
  }

  // Warp instructions times 32 for one key of one KV head.
  double Instructions() const {
    const double copies = t_.bulk_copy ? 0 : KeyBytes(t_) / t_.copy_bytes * kCopyInstructions;
    return copies + Arithmetic();
  }

  double Arithmetic() const {
    const double native_k = Saves(t_.k_format), native_v = Saves(t_.v_format);
    if (family() == KernelFamily::kDecode) {
      const int row_tiles = t_.q_rows / 8;
      const double more = (row_tiles - 1) * kRowTileInstructions;
      const double per_warp_rows = t_.warps_rows;  // Each decodes the stage for itself.
      const double k = (DecodeInstructions(t_.k_format) - native_k) * per_warp_rows * QkPasses();
      const double v = (DecodeInstructions(t_.v_format) - native_v) * per_warp_rows;
      return t_.head_dim_qk * (k + more) + t_.head_dim_vo * (v + more);
    }
    const double decode = t_.head_dim_qk * (OperandInstructions(t_.k_format) - native_k) +
                          t_.head_dim_vo * (OperandInstructions(t_.v_format) - native_v);
    if (family() == KernelFamily::kPrefillWgmma) {
      return decode + t_.q_rows * kWgmmaScoreInstructions;
    }
    const double multiplies =
        t_.q_rows * (t_.head_dim_qk * QkPasses() + t_.head_dim_vo) * kMultiplyInstructions;
    const double scores = t_.q_rows * t_.warps_vo * kScoreInstructions;
    const double steps =
        t_.warps_rows * t_.warps_vo * contract::kWarp * kStepInstructions / contract::StepRows(t_);
    const double stages =
        contract::ConsumerWarps(t_) * contract::kWarp * kStageInstructions / t_.kv_rows;
    return decode + multiplies + scores + steps + stages;
  }
  double Saves(int format) const {
    const auto f = static_cast<contract::Format>(format);
    if (f == contract::Format::kNVFP4 && spec_.features.native_e2m1) return kNativeConversionSaves;
    return 0;
  }

  const TileQuery& query_;
  const TileShape& t_;
  const DeviceSpec& spec_;
};

}  // namespace

TileEstimate EstimateTile(const TileQuery& query, const TileShape& tile, const DeviceSpec& spec) {
  const Model model(query, tile, spec);
  const double share = model.KeyHeads() / spec.slots;  // Of one SM.
  TileEstimate e;
  e.memory_us = model.ToUs(share * model.MemoryCycles());
  e.issue_us = model.ToUs(share * model.IssueCycles());
  e.mma_us = model.ToUs(share * model.MmaCycles());
  e.copy_us = model.ToUs(share * model.CopyCycles());
  e.merge_us = model.MergeUs();
  e.key_cycles = model.BlockKeyCycles();
  e.item_cycles = model.ItemCycles();
  const double steady = std::max({e.memory_us, e.issue_us, e.mma_us, e.copy_us});
  // Resources overlap, but what is busy half the time delays what is busy all the time: measured
  // for copies, 5 % where their issue takes 85 % of the time.
  const double jam = 0.06 * (e.copy_us + 0.5 * e.issue_us);
  // Items beyond one per block pay their set-up in series.
  const double grid = static_cast<double>(spec.slots) * tile.blocks_per_sm;
  const double items =
      static_cast<double>(query.blocks) * model.Passes() * query.kv_heads / tile.kv_heads;
  const double set_up = model.ToUs(std::max(1.0, items / grid) * e.item_cycles);
  e.us = kLaunchUs + steady + jam + set_up + e.merge_us;
  return e;
}

}  // namespace kvilt::plan::cuda
