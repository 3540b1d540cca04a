// From softmax states to out and lse, directly or through partials in the workspace and a merge.
#pragma once

#include "softmax.cuh"
#include "tile_rows.cuh"

namespace kvilt::kernels {

using contract::SmemPart;

// The state of one row (contract/softmax.h) without its output.
struct RowState {
  float reference = kMinusInfinity;
  float weight = 0;
  float sum = 0;
};

// 2^k of a whole number k <= 0, 0 below 2^-1022.
inline double PowerOfTwo(double k) {
  if (!(k >= -1022.0)) return 0.0;
  return __builtin_bit_cast(double, static_cast<u64>(static_cast<i64>(k) + 1023) << 52);
}

// How to finish a row: out = output * factor, and its lse.
struct RowFinish {
  float factor = 0;
  float lse = kMinusInfinity;
};

// Adds the sink, and to lse what the scores lack of ALiBi. f64 where a sink or a bias may be as far
// from the scores as floats go.
inline RowFinish FinishRow(const AttentionParams& params, const QueryRow& row, i32 q_head,
                           const RowState& state) {
  constexpr double kLn2 = 0.69314718055994530942;
  const double to_base = params.lse_base_two ? 1.0 : kLn2;
  const double none = double{kMinusInfinity};
  const double sink =
      params.sink == nullptr ? none : double{params.sink[q_head * params.sink_stride]};
  RowFinish out;
  if (state.sum == 0.0f || sink == -none) {
    out.lse = static_cast<float>(sink / kLn2 * to_base);
    return out;
  }
  const double shift = contract::BiasShift(params, row, q_head) / kLn2;
  const double logit = sink / kLn2 - shift;
  double reference = double{state.reference};
  if (logit > reference) reference = CeilDouble(logit);
  const double sink_term = double{Exp2(static_cast<float>(logit - reference))};
  // In f64: beside a large sink the keys' sum may leave f32, the output still holds its share.
  const double sum = double{state.sum} * PowerOfTwo(double{state.reference} - reference);
  // Rounded weights among the keys, exact ones against the sink, which is not rounded.
  out.factor = static_cast<float>(sum / (sum + sink_term) / double{state.weight});
  const float all = static_cast<float>(sum + sink_term);
  out.lse = static_cast<float>((shift + reference + double{Log2(all)}) * to_base);
  return out;
}

// Two elements of an output row.
inline void StorePair(const AttentionParams& params, u8* row, i32 d_low, i32 d_high, float low,
                      float high) {
  switch (static_cast<Format>(params.out_format)) {
    case Format::kBF16:
    case Format::kF16: {
      const u32 pair = IsBF16(params.out_format) ? PackBF16(low, high) : PackF16(low, high);
      u16* const to = reinterpret_cast<u16*>(row);
      to[d_low] = static_cast<u16>(pair);
      to[d_high] = static_cast<u16>(pair >> 16);
      break;
    }
    default: {
      float* const to = reinterpret_cast<float*>(row);
      to[d_low] = low;
      to[d_high] = high;
      break;
    }
  }
}

// One element of an output row.
inline void StoreElement(const AttentionParams& params, u8* row, i32 d, float value) {
  switch (static_cast<Format>(params.out_format)) {
    case Format::kBF16:
      reinterpret_cast<u16*>(row)[d] = static_cast<u16>(PackBF16(value, 0.0f));
      break;
    case Format::kF16:
      reinterpret_cast<u16*>(row)[d] = static_cast<u16>(PackF16(value, 0.0f));
      break;
    default:
      reinterpret_cast<float*>(row)[d] = value;
      break;
  }
}

inline u8* OutRow(const AttentionParams& params, i64 q_row, i32 q_head) {
  return params.out + q_row * params.out_row_stride + q_head * params.out_head_stride;
}
inline void StoreLse(const AttentionParams& params, i64 q_row, i32 q_head, float lse) {
  if (params.lse == nullptr) return;
  params.lse[q_row * params.lse_row_stride + q_head * params.lse_head_stride] = lse;
}

inline contract::PartialLayout Partials(const AttentionArgs& args) {
  return {Header(args).partials, Header(args).head_dim_vo};
}
inline float* PartialStates(const AttentionArgs& args) {
  return reinterpret_cast<float*>(args.workspace + Partials(args).StateByteOffset());
}

// The end of an item: what warps_kv hold of a row is added, then written by the first of them.
template <TileShape kTile>
class ItemResult {
  static constexpr i32 kDims = contract::DimsPerWarp(kTile);
  static constexpr i32 kVo = kTile.head_dim_vo;

 public:
  ItemResult(const AttentionArgs& args, const TileRow* rows, i32 row_begin, i32 warp_kv,
             i32 warp_vo)
      : args_(args),
        rows_(rows),
        row_begin_(row_begin),
        warp_kv_(warp_kv),
        warp_vo_(warp_vo),
        dim_begin_(warp_vo * kDims) {}

  // All threads of the block. `v_global`: what outputs are in units of.
  void Finish(const RowSoftmax (&softmax)[2], float (&o)[kDims / 8][4], float v_global) {
    KVILT_UNROLLED
    for (i32 i = 0; i < 2; ++i) {
      state_[i] = {softmax[i].reference, softmax[i].weight, softmax[i].sum};
    }
    if constexpr (kTile.warps_kv > 1) {
      AddStates(o);
      AddOutputs(o);
    }
    if (warp_kv_ != 0) return;
    KVILT_UNROLLED
    for (i32 i = 0; i < 2; ++i) WriteRow(i, o, v_global);
  }

 private:
  bool HasDims(i32 dim) const { return kDims * kTile.warps_vo == kVo || dim < kVo - dim_begin_; }
  i32 TileRowIndex(i32 i) const { return row_begin_ + LaneIndex() / 4 + 8 * i; }

  // Every warp learns the total state of its rows and moves its outputs to the total's reference.
  void AddStates(float (&o)[kDims / 8][4]) {
    float* const states =
        reinterpret_cast<float*>(SharedMemory() + contract::SmemOffset(kTile, SmemPart::kState));
    const auto cell = [&](i32 warp_kv, i32 i) {
      return states + ((warp_kv * kTile.warps_vo + warp_vo_) * kTile.q_rows + TileRowIndex(i)) *
                          contract::kStateFloats;
    };
    KVILT_UNROLLED
    for (i32 i = 0; i < 2; ++i) {
      if (LaneIndex() % 4 != 0) continue;
      float* const mine = cell(warp_kv_, i);
      mine[contract::kStateReference] = state_[i].reference;
      mine[contract::kStateWeight] = state_[i].weight;
      mine[contract::kStateSum] = state_[i].sum;
    }
    BlockSync();
    KVILT_UNROLLED
    for (i32 i = 0; i < 2; ++i) {
      RowState total;
      for (i32 w = 0; w < kTile.warps_kv; ++w) {
        total.reference = MaxFloat(total.reference, cell(w, i)[contract::kStateReference]);
      }
      for (i32 w = 0; w < kTile.warps_kv; ++w) {
        const float* const other = cell(w, i);
        const float factor =
            contract::MoveFactor(other[contract::kStateReference], total.reference);
        total.weight += other[contract::kStateWeight] * factor;
        total.sum += other[contract::kStateSum] * factor;
      }
      const float factor = contract::MoveFactor(state_[i].reference, total.reference);
      KVILT_UNROLLED
      for (auto& dim : o) {
        dim[2 * i] *= factor;
        dim[2 * i + 1] *= factor;
      }
      state_[i] = total;
    }
  }

  // Through shared memory, reduce_slots warps at a time, in the order of warps_kv.
  void AddOutputs(float (&o)[kDims / 8][4]) {
    constexpr i32 kSlots = kTile.reduce_slots;
    static_assert(kTile.warps_kv == 1 || kSlots > 0);
    float* const slots = reinterpret_cast<float*>(SharedMemory() + contract::ReduceOffset(kTile));
    const auto cell = [&](i32 slot, i32 i, i32 d) {
      return slots + (slot * kTile.q_rows + TileRowIndex(i)) * kVo + dim_begin_ + 8 * d +
             LaneIndex() % 4 * 2;
    };
    for (i32 first = 1; first < kTile.warps_kv; first += kSlots) {
      const i32 slot = warp_kv_ - first;
      if (slot >= 0 && slot < kSlots) {
        KVILT_UNROLLED
        for (i32 d = 0; d < kDims / 8; ++d) {
          if (!HasDims(8 * d)) continue;
          KVILT_UNROLLED
          for (i32 i = 0; i < 2; ++i) {
            cell(slot, i, d)[0] = o[d][2 * i];
            cell(slot, i, d)[1] = o[d][2 * i + 1];
          }
        }
      }
      BlockSync();
      if (warp_kv_ == 0) {
        for (i32 w = 0; w < contract::Min(kSlots, kTile.warps_kv - first); ++w) {
          KVILT_UNROLLED
          for (i32 d = 0; d < kDims / 8; ++d) {
            if (!HasDims(8 * d)) continue;
            KVILT_UNROLLED
            for (i32 i = 0; i < 2; ++i) {
              o[d][2 * i] += cell(w, i, d)[0];
              o[d][2 * i + 1] += cell(w, i, d)[1];
            }
          }
        }
      }
      BlockSync();
    }
  }

  void WriteRow(i32 i, const float (&o)[kDims / 8][4], float v_global) {
    const TileRow& row = rows_[TileRowIndex(i)];
    if (row.block < 0) return;
    const contract::RowBlock& block = BlockAt(args_, row.block);
    constexpr bool kReorder = IsReordered(kTile.v_format);
    const i32 place = LaneIndex() % 4 * 2;
    const i32 low_dim = dim_begin_ + (kReorder ? ReorderedElement(place) : place);
    const i32 high_dim = dim_begin_ + (kReorder ? ReorderedElement(place + 1) : place + 1);
    const bool first = warp_vo_ == 0 && LaneIndex() % 4 == 0;
    if (block.splits > 1) {
      const contract::PartialLayout layout = Partials(args_);
      float* const out =
          reinterpret_cast<float*>(args_.workspace) + layout.OutIndex(block, row.split, row.vector);
      KVILT_UNROLLED
      for (i32 d = 0; d < kDims / 8; ++d) {
        if (!HasDims(8 * d)) continue;
        out[8 * d + low_dim] = o[d][2 * i] * v_global;
        out[8 * d + high_dim] = o[d][2 * i + 1] * v_global;
      }
      if (!first) return;
      float* const state = PartialStates(args_) + layout.StateIndex(block, row.split, row.vector);
      state[contract::kStateReference] = state_[i].reference;
      state[contract::kStateWeight] = state_[i].weight;
      state[contract::kStateSum] = state_[i].sum;
      return;
    }
    const AttentionParams& params = args_.params;
    const QueryRow query = QueryRowOf(args_, row);
    const RowFinish finish = FinishRow(params, query, row.q_head, state_[i]);
    u8* const out = OutRow(params, query.q_row, row.q_head);
    KVILT_UNROLLED
    for (i32 d = 0; d < kDims / 8; ++d) {
      if (!HasDims(8 * d)) continue;
      // A factor of 0 stands for an empty row, whatever its output holds.
      const float low = finish.factor == 0 ? 0.0f : o[d][2 * i] * v_global * finish.factor;
      const float high = finish.factor == 0 ? 0.0f : o[d][2 * i + 1] * v_global * finish.factor;
      StorePair(params, out, 8 * d + low_dim, 8 * d + high_dim, low, high);
    }
    if (first) StoreLse(params, query.q_row, row.q_head, finish.lse);
  }

  const AttentionArgs& args_;
  const TileRow* const rows_;
  const i32 row_begin_, warp_kv_, warp_vo_, dim_begin_;
  RowState state_[2];
};

}  // namespace kvilt::kernels
