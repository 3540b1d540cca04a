// Stitches the splits of each row, in split order; rows without a split become empty rows.
//
// A warp for each vector, lanes over the output's dims; blocks walk the plan's merge list.
#pragma once

#include "results.cuh"

namespace kvilt::kernels {

using MergeArgs = AttentionArgs;
using contract::kMergeThreads;

class Merger {
 public:
  explicit Merger(const AttentionArgs& args) : args_(args) {}

  void Run() const {
    const PlanHeader& header = Header(args_);
    const auto* merges = PlanArray<contract::MergeItem>(args_.plan, header.merges_offset);
    const i32 warps = kMergeThreads / 32;
    for (i32 m = BlockIndex(); m < header.merges; m += GridBlocks()) {
      const contract::MergeItem& merge = merges[m];
      for (i64 v = merge.begin + WarpIndex(); v < merge.begin + merge.count; v += warps) {
        MergeVector(BlockAt(args_, merge.block), v);
      }
    }
  }

 private:
  // Splits are summed in groups of so many in f32, and the groups in f64, so that no number of
  // splits drifts.
  static constexpr i32 kGroup = 64;

  void MergeVector(const contract::RowBlock& block, i64 vector) const {
    const AttentionParams& params = args_.params;
    const contract::PartialLayout layout = Partials(args_);
    const QueryRow query = MakeQueryRow(params, RequestAt(args_, block.request),
                                        block.row_begin + vector / block.q_head_count);
    const i32 q_head = block.q_head_begin + static_cast<i32>(vector % block.q_head_count);
    const float* const states = PartialStates(args_) + layout.StateIndex(block, 0, vector);
    const RowState total = block.splits == 0 ? RowState() : AddStates(states, block.splits);
    const RowFinish finish = FinishRow(params, query, q_head, total);
    u8* const out = OutRow(params, query.q_row, q_head);
    const i32 dim = static_cast<i32>(layout.head_dim_vo);
    for (i32 d = 2 * LaneIndex(); d < dim; d += 64) {
      double low = 0, high = 0;
      if (finish.factor != 0) AddOutputs(block, vector, states, total.reference, d, low, high);
      StorePair(params, out, d, static_cast<float>(low) * finish.factor,
                static_cast<float>(high) * finish.factor);
    }
    if (LaneIndex() == 0) StoreLse(params, query.q_row, q_head, finish.lse);
  }

  // The whole warp: lanes take splits in turn.
  static RowState AddStates(const float* states, i32 splits) {
    RowState total;
    for (i32 s = LaneIndex(); s < splits; s += 32) {
      total.reference = MaxFloat(total.reference, LoadL2(states + i64{s} * contract::kStateFloats));
    }
    for (i32 mask = 16; mask > 0; mask /= 2) {
      total.reference = MaxFloat(total.reference, ShuffleXor(total.reference, mask));
    }
    double weight = 0, sum = 0;
    for (i32 s = LaneIndex(); s < splits; s += 32) {
      const float* const state = states + i64{s} * contract::kStateFloats;
      const float own = LoadL2(state + contract::kStateSum);
      if (own == 0.0f) continue;  // Saw nothing.
      const double factor =
          contract::MoveFactor(LoadL2(state + contract::kStateReference), total.reference);
      weight += factor * double{LoadL2(state + contract::kStateWeight)};
      sum += factor * double{own};
    }
    total.weight = static_cast<float>(weight);
    total.sum = static_cast<float>(sum);
    for (i32 mask = 16; mask > 0; mask /= 2) {
      total.weight += ShuffleXor(total.weight, mask);
      total.sum += ShuffleXor(total.sum, mask);
    }
    return total;
  }

  void AddOutputs(const contract::RowBlock& block, i64 vector, const float* states, float reference,
                  i32 d, double& low, double& high) const {
    const contract::PartialLayout layout = Partials(args_);
    const float* const outputs = reinterpret_cast<const float*>(args_.workspace);
    for (i32 begin = 0; begin < block.splits; begin += kGroup) {
      float group_low = 0, group_high = 0;
      for (i32 s = begin; s < contract::Min(begin + kGroup, block.splits); ++s) {
        const float* const state = states + i64{s} * contract::kStateFloats;
        if (LoadL2(state + contract::kStateSum) == 0.0f) continue;
        const float factor =
            contract::MoveFactor(LoadL2(state + contract::kStateReference), reference);
        const float* const output = outputs + layout.OutIndex(block, s, vector) + d;
        group_low += factor * LoadL2(output);
        group_high += factor * LoadL2(output + 1);
      }
      low += double{group_low};
      high += double{group_high};
    }
  }

  const AttentionArgs& args_;
};

// Every thread of blocks of kMergeThreads, any grid.
inline void Merge(const AttentionArgs& args) {
  WaitForPrevious();
  Merger(args).Run();
  LetNextStart();
}

}  // namespace kvilt::kernels
