// Stitches the splits of each row, in split order; rows without a split become empty rows.
//
// A block for each vector (a row of a query head), a thread for each output dim; blocks walk the
// plan's merge list. Loads of several splits are under way at once: one after another, 80 splits
// took 100 us (H200, 2026-12-01).
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
    const i64 count = i64{header.merges} * contract::kMergeVectors;
    for (i64 i = BlockIndex(); i < count; i += GridBlocks()) {
      const contract::MergeItem& merge = merges[i / contract::kMergeVectors];
      const i64 vector = i % contract::kMergeVectors;
      if (vector < merge.count) MergeVector(BlockAt(args_, merge.block), merge.begin + vector);
    }
  }

 private:
  // Splits are summed in groups of so many in f32, and the groups in f64, so that no number of
  // splits drifts.
  static constexpr i32 kGroup = 64;
  static constexpr i32 kLoads = 8;  // At once.

  void MergeVector(const contract::RowBlock& block, i64 vector) const {
    const AttentionParams& params = args_.params;
    const contract::PartialLayout layout = Partials(args_);
    const QueryRow query = contract::MakeQueryRow(params, RequestAt(args_, block.request),
                                                  block.row_begin + vector / block.q_head_count);
    const i32 q_head = block.q_head_begin + static_cast<i32>(vector % block.q_head_count);
    const float* const states = PartialStates(args_) + layout.StateIndex(block, 0, vector);
    // Every warp adds the states for itself.
    const RowState total = block.splits == 0 ? RowState() : AddStates(states, block.splits);
    const RowFinish finish = FinishRow(params, query, q_head, total);
    u8* const out = OutRow(params, query.q_row, q_head);
    const i32 dim = static_cast<i32>(layout.head_dim_vo);
    for (i32 d = ThreadIndex(); d < contract::RoundUp(dim, 32); d += kMergeThreads) {
      double sum = 0;
      if (finish.factor != 0) {
        sum = AddOutputs(block, vector, states, total.reference, contract::Min(d, dim - 1));
      }
      if (d < dim) StoreElement(params, out, d, static_cast<float>(sum) * finish.factor);
    }
    if (ThreadIndex() == 0) StoreLse(params, query.q_row, q_head, finish.lse);
  }

  static float StateOf(const float* states, i32 split, i32 field) {
    return states[i64{split} * contract::kStateFloats + field];
  }

  // The whole warp: lanes take splits in turn.
  static RowState AddStates(const float* states, i32 splits) {
    RowState total;
    for (i32 s = LaneIndex(); s < splits; s += 32) {
      total.reference = MaxFloat(total.reference, StateOf(states, s, contract::kStateReference));
    }
    for (i32 mask = 16; mask > 0; mask /= 2) {
      total.reference = MaxFloat(total.reference, ShuffleXor(total.reference, mask));
    }
    double weight = 0, sum = 0;
    for (i32 s = LaneIndex(); s < splits; s += 32) {
      const double factor = Factor(states, s, total.reference);
      if (factor == 0) continue;  // Saw nothing, or nothing that counts.
      weight += factor * double{StateOf(states, s, contract::kStateWeight)};
      sum += factor * double{StateOf(states, s, contract::kStateSum)};
    }
    total.weight = static_cast<float>(weight);
    total.sum = static_cast<float>(sum);
    for (i32 mask = 16; mask > 0; mask /= 2) {
      total.weight += ShuffleXor(total.weight, mask);
      total.sum += ShuffleXor(total.sum, mask);
    }
    return total;
  }

  // Of a split's output and weights; 0 where it saw nothing.
  static float Factor(const float* states, i32 split, float reference) {
    const float sum = StateOf(states, split, contract::kStateSum);
    if (sum == 0.0f) return 0.0f;
    if (sum != sum) return sum;  // Scores that are NaN stay seen, in whichever split they are.
    return contract::MoveFactor(StateOf(states, split, contract::kStateReference), reference);
  }

  // Dim d of the sum over splits. The whole warp: lanes hold the factors of 32 splits each.
  double AddOutputs(const contract::RowBlock& block, i64 vector, const float* states,
                    float reference, i32 d) const {
    const contract::PartialLayout layout = Partials(args_);
    const float* const outputs =
        reinterpret_cast<const float*>(args_.workspace) + layout.OutIndex(block, 0, vector) + d;
    const i64 stride = layout.OutIndex(block, 1, vector) - layout.OutIndex(block, 0, vector);
    double sum = 0;
    for (i32 begin = 0; begin < block.splits; begin += kGroup) {
      const i32 end = contract::Min(begin + kGroup, block.splits);
      float group = 0;
      for (i32 first = begin; first < end; first += 32) {
        const i32 mine = first + LaneIndex();
        const float factor = mine < end ? Factor(states, mine, reference) : 0.0f;
        group = AddWarpOfSplits(outputs + first * stride, stride, contract::Min(32, end - first),
                                factor, group);
      }
      sum += double{group};
    }
    return sum;
  }
  static float AddWarpOfSplits(const float* outputs, i64 stride, i32 count, float factor,
                               float group) {
    for (i32 first = 0; first < count; first += kLoads) {
      float values[kLoads];
      KVILT_UNROLLED
      for (i32 l = 0; l < kLoads; ++l) {
        values[l] = first + l < count ? outputs[(first + l) * stride] : 0.0f;
      }
      KVILT_UNROLLED
      for (i32 l = 0; l < kLoads; ++l) {
        const float own = Shuffle(factor, (first + l) & 31);
        // A split that saw nothing may hold anything.
        if (own != 0.0f) group += own * values[l];
      }
    }
    return group;
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
