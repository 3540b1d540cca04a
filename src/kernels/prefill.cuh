// Attention over operand tiles by mma.sync (sm_80 and up): KernelFamily::kPrefill.
//
//   block: q_rows x kv_rows at a time          warp (r, k, v) of warps_rows x warps_kv x warps_vo:
//   Q in shared memory, once an item             scores of its 16 rows and its share of the keys,
//   ring of packed stages, decoded once          their softmax, and their sum over its output dims
//   into 16-bit operand tiles                  warps_kv are added at the end of the item
//
// Blocks are persistent: each walks its items of the plan's list.
#pragma once

#include "prefill_warp.cuh"
#include "results.cuh"

namespace kvilt::kernels {

template <TileShape kTile>
class Prefill : private PrefillWarp<kTile> {
  using Warp = PrefillWarp<kTile>;
  using Warp::args_, Warp::rows_, Warp::stages_, Warp::softmax_, Warp::o_;
  using Warp::kKeys;
  static_assert(kTile.stages > 0 && kTile.producer_warps == 0 && kTile.kv_heads == 1);

 public:
  explicit Prefill(const AttentionArgs& args) : Warp(args) {}

  void Run() {
    const PlanHeader& header = Header(args_);
    const auto& launch =
        PlanArray<contract::LaunchInfo>(args_.plan, header.launches_offset)[args_.launch];
    const i32* slots = PlanArray<i32>(args_.plan, header.slots_offset) + launch.slot_begin;
    const auto* items = PlanArray<contract::WorkItem>(args_.plan, header.items_offset);
    for (i32 i = slots[BlockIndex()]; i < slots[BlockIndex() + 1]; ++i) RunItem(items[i]);
  }

 private:
  void RunItem(const contract::WorkItem& item) {
    BlockSync();  // The last item is done with shared memory.
    for (i32 r = ThreadIndex(); r < kTile.q_rows; r += contract::Threads(kTile)) {
      rows_[r] = MakeTileRow(args_, item, r);
    }
    Warp::Clear();
    BlockSync();
    bool loaded = false;
    bool loaded_bf16 = false;
    float v_global = 1.0f;
    ForEachSegment(item, [&](const SegmentKeys& keys) {
      const bool bf16 = Warp::OperandIsBF16(keys.segment->k.format);
      if (!loaded || loaded_bf16 != bf16) {
        if (loaded) BlockSync();
        Warp::LoadQueryAs(keys.segment->k.format);
        loaded = true;
        loaded_bf16 = bf16;
      }
      const float global =
          contract::GlobalOf(keys.segment->v, keys.kv_head) * OperandScale(keys.segment->v.format);
      if (v_global != global) Warp::ScaleOutput(v_global / global);
      v_global = global;
      RunSegment(item, keys);
    });
    softmax_[0].AddLanes();
    softmax_[1].AddLanes();
    ItemResult<kTile> result(args_, rows_, Warp::row_begin_, Warp::warp_kv_, Warp::warp_vo_);
    result.Finish(softmax_, o_, v_global);
  }

  // The parts of the item's keys that lie in one segment each, in order.
  template <class Visit>
  void ForEachSegment(const contract::WorkItem& item, Visit&& visit) {
    const PlanHeader& header = Header(args_);
    const auto* spans = PlanArray<contract::WorkSpan>(args_.plan, header.spans_offset);
    const i32 request = BlockAt(args_, spans[item.span_begin].block).request;
    const i64* begins = PlanArray<i64>(args_.plan, header.segment_begin_offset) +
                        i64{request} * (header.segments + 1);
    for (i32 s = 0; s < header.segments; ++s) {
      SegmentKeys keys;
      keys.begin = contract::Max(begins[s], item.key_begin);
      keys.end = contract::Min(begins[s + 1], item.key_end);
      if (keys.begin >= keys.end) continue;
      const SegmentParams& segment = args_.segments[s];
      keys.segment = &segment;
      keys.segment_key = begins[s];
      keys.position_begin = RequestAt(args_, request).key_position_begin;
      keys.kv_head = item.head_begin;
      keys.first = args_.table_begins[i64{request} * header.segments + s];
      visit(keys);
    }
  }

  void RunSegment(const contract::WorkItem& item, const SegmentKeys& keys) {
    constexpr bool kDecodes = contract::NeedsKOperand(kTile) || contract::NeedsVOperand(kTile);
    // Where both sides are decoded, a slot is free as soon as they are.
    constexpr bool kFreeEarly = contract::NeedsKOperand(kTile) && contract::NeedsVOperand(kTile);
    constexpr i32 kAhead = kFreeEarly ? kTile.stages : kTile.stages - 1;
    const i32 count = keys.Stages(kKeys);
    const auto seen = [&](i64 key) {
      return this->SomeRowSees(static_cast<i32>(key - item.key_begin));
    };
    BlockSync();  // Ring and places are free, the query is there.
    Warp::SetScales(keys);
    for (i32 n = 0; n <= kAhead; ++n) stages_.Publish(args_, n, stages_.LookUp(keys, n, seen));
    BlockSync();
    for (i32 n = 0; n < kAhead; ++n) {
      if (n < count) stages_.Copy(keys, n);
      CopyCommit();
    }
    for (i32 n = 0; n < count; ++n) {
      CopyWait<kAhead - 1>();
      BlockSync();
      if constexpr (!kFreeEarly) {
        if (n + kAhead < count) stages_.Copy(keys, n + kAhead);
        CopyCommit();
      }
      if constexpr (kDecodes) {
        stages_.Decode(args_, keys, n);
        BlockSync();
      }
      if constexpr (kFreeEarly) {
        if (n + kAhead < count) stages_.Copy(keys, n + kAhead);
        CopyCommit();
      }
      // The page ids arrive meanwhile.
      const auto places = stages_.LookUp(keys, n + kAhead + 1, seen);
      Warp::Compute(item, keys, n);
      stages_.Publish(args_, n + kAhead + 1, places);
    }
    CopyWait<0>();
  }
};

}  // namespace kvilt::kernels
