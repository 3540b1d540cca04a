// Writes rows of K and V into a cache by slot, the same bits and counts as src/cpu/append.cc.
//
// A thread for each block of 16 elements. Compile without contraction of a * b + c.
#pragma once

#include "append_args.h"
#include "element_block.cuh"

namespace kvilt::kernels {

using contract::AppendArgs;

// One side of an append.
class SideWriter {
 public:
  SideWriter(const AppendArgs& args, const contract::RowParams& rows,
             const contract::SideParams& side, u64* health)
      : args_(args), rows_(rows), side_(side), health_(health) {}

  void Run(SideShare share) {
    while (share.Next()) {
      const i64 slot = contract::LoadIndex(args_.slots.slots, args_.slots.is_i64, share.token);
      if (slot >= 0 && slot < args_.slots.capacity) {
        WriteBlock(share, slot);
      } else if (slot == -1) {
        skipped_ += share.head == 0 && share.block == 0;  // Once for a token.
      } else if (args_.error != nullptr) {
        StoreFirst(args_.error, static_cast<u32>(contract::WriterError::kBadSlot));
      }
    }
    AddCounter(contract::Health::kNan, nan_);
    AddCounter(contract::Health::kInfinite, infinite_);
    AddCounter(contract::Health::kSaturated, saturated_);
    AddCounter(contract::Health::kFlushedBlocks, flushed_);
    AddCounter(contract::Health::kSkipped, skipped_);
  }

 private:
  void WriteBlock(const SideShare& at, i64 slot) {
    const i64 page = slot / args_.params.page_size;
    const i64 entry = slot - page * args_.params.page_size;
    const u8* const from = rows_.data + at.token * rows_.token_stride +
                           at.head * rows_.head_stride +
                           BytesOfElements(rows_.format, kBlockElements) * i64{at.block};
    u32 words[kBlockWords];
    float x[kBlockElements];
    LoadWords(from, BytesOfElements(rows_.format, at.count), words);
    DecodeWords(rows_.format, words, x);
    const float global = contract::GlobalOf(side_, at.head);
    if (side_.format == static_cast<i32>(Format::kNVFP4)) {
      EncodeNvfp4(x, global, words);
      u8* const scale = const_cast<u8*>(side_.scales) +
                        contract::ScaleOffset(side_, page, entry, at.head, at.block);
      *scale = scale_;
    } else {
      ToStored(x, at.count, global);
      EncodeWords(side_.format, x, words);
    }
    u8* const to = const_cast<u8*>(side_.data) + contract::DataOffset(side_, page, entry, at.head) +
                   BytesOfElements(side_.format, kBlockElements) * i64{at.block};
    StoreWords(words, BytesOfElements(side_.format, at.count), to);
  }

  void EncodeNvfp4(const float (&x)[kBlockElements], float global, u32 (&words)[kBlockWords]) {
    const contract::Nvfp4Block block =
        contract::EncodeNvfp4Block(x, global, args_.params.four_over_six != 0);
    words[0] = words[1] = 0;
    KVILT_UNROLLED
    for (i32 i = 0; i < contract::kNvfp4BlockBytes; ++i) {
      words[i / 4] |= static_cast<u32>(block.codes[i]) << (8 * (i % 4));
    }
    scale_ = block.scale;
    nan_ += block.nan;
    infinite_ += block.infinite;
    saturated_ += block.saturated;
    flushed_ += block.flushed;
  }

  // Divides by the global and counts what the formats without blocks count. Elements past `count`
  // are 0 and count nothing.
  void ToStored(float (&x)[kBlockElements], i32 count, float global) {
    const bool e4m3 = side_.format == static_cast<i32>(Format::kE4M3);
    const bool e5m2 = side_.format == static_cast<i32>(Format::kE5M2);
    KVILT_UNROLLED
    for (i32 i = 0; i < kBlockElements; ++i) {
      if (i >= count) continue;
      const bool nan = contract::IsNan(x[i]);
      nan_ += nan;
      infinite_ += contract::IsInfinite(x[i]);
      x[i] = nan && global != 1.0f ? QuietNan(x[i]) : contract::StoredValue(x[i], global);
      saturated_ += (e4m3 && contract::ClipsE4M3(x[i])) || (e5m2 && contract::ClipsE5M2(x[i]));
    }
  }

  // The whole warp; one addition for each warp, none where all is well.
  void AddCounter(contract::Health counter, u64 count) const {
    if (health_ == nullptr || !Any(count != 0)) return;
    for (i32 mask = 16; mask > 0; mask /= 2) {
      const u64 low = ShuffleXor(static_cast<u32>(count), mask);
      const u64 high = ShuffleXor(static_cast<u32>(count >> 32), mask);
      count += high << 32 | low;
    }
    if (LaneIndex() == 0) AddGlobal(health_ + static_cast<i32>(counter), count);
  }

  const AppendArgs& args_;
  const contract::RowParams& rows_;
  const contract::SideParams& side_;
  u64* const health_;
  u8 scale_ = 0;  // Of the block that was encoded last.
  u64 nan_ = 0, infinite_ = 0, saturated_ = 0, flushed_ = 0, skipped_ = 0;
};

// Every thread of blocks of kWriterThreads, any grid.
inline void Append(const AppendArgs& args) {
  WaitForPrevious();
  const contract::AppendParams& params = args.params;
  SideWriter(args, params.k_rows, params.k, args.k_health)
      .Run(SideShare(0, params.tokens, params.kv_heads, params.k.head_dim));
  SideWriter(args, params.v_rows, params.v, args.v_health)
      .Run(SideShare(1, params.tokens, params.kv_heads, params.v.head_dim));
  LetNextStart();
}

}  // namespace kvilt::kernels
