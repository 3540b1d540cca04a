// What one warp of the prefill kernel does with a stage: scores, softmax, weights times values.
//
// Fragments are those of mma.m16n8k16 (simt_ptx.cuh): a thread holds rows lane / 4 and + 8 of its
// warp's 16, and of each 8 keys or dims two neighbours.
#pragma once

#include "key_stages.cuh"
#include "softmax.cuh"
#include "tile_rows.cuh"

namespace kvilt::kernels {

template <TileShape kTile>
class PrefillWarp {
 protected:
  static constexpr i32 kKeys = kTile.kv_rows;
  static constexpr i32 kQk = kTile.head_dim_qk;
  static constexpr i32 kVo = kTile.head_dim_vo;
  static constexpr i32 kDims = contract::DimsPerWarp(kTile);
  static constexpr i32 kStep = contract::StepRows(kTile);
  static constexpr i32 kShare = kKeys / kTile.warps_kv;  // Keys of a stage for one of warps_kv.
  static constexpr i32 kQPartBytes = kTile.q_rows * kQk * 2;
  static constexpr i32 kKPartBytes = kKeys * kQk * 2;
  static constexpr bool kRotate = kTile.k_parts > 1;
  static_assert(kShare % kStep == 0 && kStep % 16 == 0);

  explicit PrefillWarp(const AttentionArgs& args)
      : args_(args),
        form_(args.params),
        stages_(SharedMemory()),
        rows_(reinterpret_cast<TileRow*>(SharedMemory() +
                                         contract::SmemOffset(kTile, SmemPart::kRows))),
        q_(SharedMemory() + contract::SmemOffset(kTile, SmemPart::kQ)) {
    const i32 warp = WarpIndex();
    warp_vo_ = warp % kTile.warps_vo;
    warp_kv_ = warp / kTile.warps_vo % kTile.warps_kv;
    row_begin_ = warp / (kTile.warps_vo * kTile.warps_kv) * 16;
    dim_begin_ = warp_vo_ * kDims;
  }

  static bool OperandIsBF16(i32 format) { return kRotate || IsBF16(format); }

  void LoadQueryAs(i32 k_format) {
    if constexpr (kRotate) {
      LoadQuery<kTile, true>(args_, rows_, q_);
    } else {
      WithType<kTile.k_format>(k_format,
                               [&]<bool kBF16>() { LoadQuery<kTile, kBF16>(args_, rows_, q_); });
    }
  }

  // Keys in the gaps of bit masks and of windows at given positions may hold anything, so they are
  // left out like keys beyond the end; elsewhere the item's keys have no gaps.
  bool SomeRowSees(i32 key) const {
    if (!form_.bits && args_.params.q_positions == nullptr) return true;
    for (i32 r = 0; r < kTile.q_rows; ++r) {
      const TileRow& row = rows_[r];
      if (row.block < 0 || key < row.visible_begin || key >= row.visible_end) continue;
      if (!form_.bits || BitsAllow(args_.params, row, key)) return true;
    }
    return false;
  }

  // Forgets the last item.
  void Clear() {
    KVILT_UNROLLED
    for (auto& dim : o_) {
      KVILT_UNROLLED
      for (float& value : dim) value = 0;
    }
    softmax_[0] = softmax_[1] = RowSoftmax();
  }

  // Of the thread's two rows: from MMA sums to logits (or, plain, to scores).
  void SetScales(const SegmentKeys& keys) {
    const double global = contract::GlobalOf(keys.segment->k, keys.kv_head);
    const float operand = kRotate ? 1.0f : OperandScale(keys.segment->k.format);
    const double scale = args_.params.logit_scale * global * operand *
                         (form_.plain() ? double{contract::kLog2E} : 1.0);
    KVILT_UNROLLED
    for (i32 i = 0; i < 2; ++i) {
      const TileRow& row = rows_[row_begin_ + LaneIndex() / 4 + 8 * i];
      scale_[i] = static_cast<float>(scale * row.q_scale);
      has_row_[i] = row.block >= 0;
      visible_begin_[i] = row.visible_begin;
      visible_end_[i] = row.visible_end;
    }
  }

  void ScaleOutput(float factor) {
    KVILT_UNROLLED
    for (auto& dim : o_) {
      KVILT_UNROLLED
      for (float& value : dim) value *= factor;
    }
  }

  // Calls visit.operator()<is bf16>() for the format that a side has, which the tile knows unless
  // it takes any.
  template <i32 kFormat, class Visit>
  static void WithType(i32 format, Visit&& visit) {
    if constexpr (kFormat != contract::kAnyFormat) {
      visit.template operator()<IsBF16(kFormat)>();
    } else if (IsBF16(format)) {
      visit.template operator()<true>();
    } else {
      visit.template operator()<false>();
    }
  }

  void Compute(const contract::WorkItem& item, const SegmentKeys& keys, i32 n) {
    // Rotated keys are bf16 operands whatever they are stored as.
    constexpr i32 kKFormat = kRotate ? static_cast<i32>(Format::kBF16) : kTile.k_format;
    const i64 begin = keys.begin + i64{n} * kKeys;
    const i32 offset = static_cast<i32>(begin - item.key_begin);
    const i32 present = static_cast<i32>(contract::Min<i64>(kKeys, keys.end - begin));
    const bool absent = stages_.AnyAbsent(n);
    for (i32 key = warp_kv_ * kShare; key < (warp_kv_ + 1) * kShare; key += kStep) {
      const bool whole = !absent && key + kStep <= present;
      if (key >= present) break;
      const i32 seen = RowsSee(offset + key);
      if (seen == kNone) continue;
      float s[kStep / 8][4];
      WithType<kKFormat>(keys.segment->k.format, [&]<bool kBF16>() { Scores<kBF16>(n, key, s); });
      if (!form_.plain()) Shape(offset + key, s);
      if (form_.bits || !whole || seen != kAll) Hide(n, key, offset, present, s);
      WithType<kTile.v_format>(keys.segment->v.format,
                               [&]<bool kBF16>() { Accumulate<kBF16>(n, key, s); });
    }
  }

  // Whether the warp has output dims from this one of its own on.
  bool HasDims(i32 dim) const { return kDims * kTile.warps_vo == kVo || dim < kVo - dim_begin_; }

  static constexpr i32 kNone = 0, kSome = 1, kAll = 2;
  // Whether the warp's rows see the keys of a step that begins at offset `key` of the item.
  i32 RowsSee(i32 key) const {
    bool any = false, all = true;
    KVILT_UNROLLED
    for (i32 i = 0; i < 2; ++i) {
      any = any || (has_row_[i] && visible_begin_[i] < key + kStep && visible_end_[i] > key);
      all = all && visible_begin_[i] <= key && visible_end_[i] >= key + kStep;
    }
    if (!Any(any)) return kNone;
    return Any(!all) ? kSome : kAll;
  }

  template <bool kBF16>
  void Scores(i32 n, i32 key, float (&s)[kStep / 8][4]) const {
    const u8* const k = stages_.KOperand(n);
    const i32 lane = LaneIndex();
    KVILT_UNROLLED
    for (auto& tile : s) {
      KVILT_UNROLLED
      for (float& value : tile) value = 0;
    }
    const i32 a_row = row_begin_ + (lane & 15);
    const i32 b_row = key + (lane >> 4) * 8 + (lane & 7);
    for (i32 chunk = 0; chunk < kQk / 8; chunk += 2) {
      const i32 a_at = contract::OperandChunk(a_row, chunk + (lane >> 4), kQk / 8) * 16;
      u32 a[kTile.q_parts][4];
      KVILT_UNROLLED
      for (i32 p = 0; p < kTile.q_parts; ++p) LoadMatrix4(a[p], q_ + p * kQPartBytes + a_at);
      KVILT_UNROLLED
      for (i32 t = 0; t < kStep / 16; ++t) {
        const i32 b_at =
            contract::OperandChunk(b_row + 16 * t, chunk + ((lane >> 3) & 1), kQk / 8) * 16;
        KVILT_UNROLLED
        for (i32 p = 0; p < kTile.k_parts; ++p) {
          u32 b[4];
          LoadMatrix4(b, k + p * kKPartBytes + b_at);
          // The product of the two low summands is below what is kept.
          KVILT_UNROLLED
          for (i32 q = 0; q < kTile.q_parts - p; ++q) {
            Mma<kBF16>(s[2 * t], a[q], b[0], b[1]);
            Mma<kBF16>(s[2 * t + 1], a[q], b[2], b[3]);
          }
        }
      }
    }
    KVILT_UNROLLED
    for (auto& tile : s) {
      KVILT_UNROLLED
      for (i32 i = 0; i < 4; ++i) tile[i] *= scale_[i / 2];
    }
  }

  // Soft cap and ALiBi; logits become scores. `key`: offset in the item.
  void Shape(i32 key, float (&s)[kStep / 8][4]) const {
    KVILT_UNROLLED
    for (i32 i = 0; i < 2; ++i) {
      const TileRow& row = rows_[row_begin_ + LaneIndex() / 4 + 8 * i];
      const i32 first = key + LaneIndex() % 4 * 2 - row.anchor;
      KVILT_UNROLLED
      for (i32 t = 0; t < kStep / 8; ++t) {
        KVILT_UNROLLED
        for (i32 c = 0; c < 2; ++c) {
          const float bias = row.slope * static_cast<float>(first + 8 * t + c);
          s[t][2 * i + c] = Score(form_, s[t][2 * i + c], bias);
        }
      }
    }
  }

  // Minus infinity for what a row may not see.
  void Hide(i32 n, i32 key, i32 offset, i32 present, float (&s)[kStep / 8][4]) const {
    const KeyPlace* const places = stages_.PlacesOf(n);
    KVILT_UNROLLED
    for (i32 i = 0; i < 2; ++i) {
      const TileRow& row = rows_[row_begin_ + LaneIndex() / 4 + 8 * i];
      KVILT_UNROLLED
      for (i32 t = 0; t < kStep / 8; ++t) {
        KVILT_UNROLLED
        for (i32 c = 0; c < 2; ++c) {
          const i32 in_stage = key + 8 * t + LaneIndex() % 4 * 2 + c;
          const i32 at = offset + in_stage;
          bool sees = in_stage < present && at >= visible_begin_[i] && at < visible_end_[i] &&
                      places[in_stage].page >= 0;
          if (sees && form_.bits && has_row_[i]) sees = BitsAllow(args_.params, row, at);
          if (!sees) s[t][2 * i + c] = kMinusInfinity;
        }
      }
    }
  }

  // Softmax of the step, and weights times values.
  template <bool kBF16>
  void Accumulate(i32 n, i32 key, float (&s)[kStep / 8][4]) {
    Advance<kBF16>(s);
    u32 p[kStep / 8][2];
    KVILT_UNROLLED
    for (i32 i = 0; i < 2; ++i) {
      RowSoftmax& row = softmax_[i];
      const float reference = row.reference == kMinusInfinity ? 0.0f : row.reference;
      KVILT_UNROLLED
      for (i32 t = 0; t < kStep / 8; ++t) {
        const float low = Exp2(s[t][2 * i] - reference);
        const float high = Exp2(s[t][2 * i + 1] - reference);
        p[t][i] = Pack<kBF16>(low, high);
        row.sum += low + high;
        row.weight += LowOf<kBF16>(p[t][i]) + HighOf<kBF16>(p[t][i]);
      }
    }
    const u8* const v = stages_.VOperand(n);
    const i32 lane = LaneIndex();
    const i32 row = key + (lane & 15);
    KVILT_UNROLLED
    for (i32 t = 0; t < kStep / 16; ++t) {
      const u32 a[4] = {p[2 * t][0], p[2 * t][1], p[2 * t + 1][0], p[2 * t + 1][1]};
      KVILT_UNROLLED
      for (i32 d = 0; d < kDims / 16; ++d) {
        if (HasDims(16 * d)) {
          const i32 chunk = dim_begin_ / 8 + 2 * d + (lane >> 4);
          u32 b[4];
          LoadMatrix4Transposed(b, v + contract::OperandChunk(row + 16 * t, chunk, kVo / 8) * 16);
          Mma<kBF16>(o_[2 * d], a, b[0], b[1]);
          Mma<kBF16>(o_[2 * d + 1], a, b[2], b[3]);
        }
      }
    }
  }

  // Moves references up to the step's scores, and what was summed with them.
  template <bool kBF16>
  void Advance(const float (&s)[kStep / 8][4]) {
    float factor[2] = {1.0f, 1.0f};
    bool moved = false;
    KVILT_UNROLLED
    for (i32 i = 0; i < 2; ++i) {
      float largest = kMinusInfinity;
      KVILT_UNROLLED
      for (i32 t = 0; t < kStep / 8; ++t) {
        largest = MaxFloat(largest, MaxFloat(s[t][2 * i], s[t][2 * i + 1]));
      }
      largest = MaxFloat(largest, ShuffleXor(largest, 1));
      largest = MaxFloat(largest, ShuffleXor(largest, 2));
      const float wanted = Ceil(largest) - kReferenceBelow<kBF16>;
      if (wanted > softmax_[i].reference) {
        factor[i] = contract::MoveFactor(softmax_[i].reference, wanted);
        softmax_[i].reference = wanted;
        moved = true;
      }
    }
    if (!Any(moved)) return;
    KVILT_UNROLLED
    for (i32 i = 0; i < 2; ++i) {
      softmax_[i].weight *= factor[i];
      softmax_[i].sum *= factor[i];
      KVILT_UNROLLED
      for (auto& dim : o_) {
        dim[2 * i] *= factor[i];
        dim[2 * i + 1] *= factor[i];
      }
    }
  }

  const AttentionArgs& args_;
  const ScoreForm form_;
  const KeyStages<kTile> stages_;
  TileRow* const rows_;
  u8* const q_;
  i32 warp_kv_, warp_vo_, row_begin_, dim_begin_;
  // Of the thread's two rows.
  float scale_[2];
  bool has_row_[2];
  i32 visible_begin_[2], visible_end_[2];
  RowSoftmax softmax_[2];  // Of rows lane / 4 and + 8.
  float o_[kDims / 8][4];
};

}  // namespace kvilt::kernels
