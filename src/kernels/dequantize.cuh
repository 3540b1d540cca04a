// Reads rows of K and V of a cache by slot: RNE((code * scale) * global), the same bits as
// src/cpu/dequantize.cc.
//
// A thread for each block of 16 elements. Compile without contraction of a * b + c.
#pragma once

#include "append_args.h"
#include "element_block.cuh"

namespace kvilt::kernels {

using contract::DequantizeArgs;

// One side of a dequantize.
class SideReader {
 public:
  SideReader(const DequantizeArgs& args, const contract::RowParams& rows,
             const contract::SideParams& side)
      : args_(args), rows_(rows), side_(side) {}

  void Run(SideShare share) const {
    if (rows_.data == nullptr) return;
    while (share.Next()) {
      float x[kBlockElements] = {};
      const i64 slot = contract::LoadIndex(args_.slots.slots, args_.slots.is_i64, share.token);
      if (slot >= 0 && slot < args_.slots.capacity) ReadBlock(share, slot, x);
      u32 words[kBlockWords];
      EncodeWords(rows_.format, x, words);
      u8* const to = rows_.data + share.token * rows_.token_stride +
                     share.head * rows_.head_stride +
                     BytesOfElements(rows_.format, kBlockElements) * i64{share.block};
      StoreWords(words, BytesOfElements(rows_.format, share.count), to);
    }
  }

 private:
  void ReadBlock(const SideShare& at, i64 slot, float (&x)[kBlockElements]) const {
    const i64 page = slot / args_.params.page_size;
    const i64 entry = slot - page * args_.params.page_size;
    const u8* const from = side_.data + contract::DataOffset(side_, page, entry, at.head) +
                           BytesOfElements(side_.format, kBlockElements) * i64{at.block};
    u32 words[kBlockWords];
    LoadWords(from, BytesOfElements(side_.format, at.count), words);
    const float global = contract::GlobalOf(side_, at.head);
    if (side_.format == static_cast<i32>(Format::kNVFP4)) {
      const u8 scale = side_.scales[contract::ScaleOffset(side_, page, entry, at.head, at.block)];
      const float wide = contract::DecodeE4M3(scale);
      KVILT_UNROLLED
      for (i32 i = 0; i < kBlockElements; ++i) {
        const u32 code = words[i / 8] >> (4 * (i % 8));
        x[i] = contract::IsNan(wide) ? wide : contract::DequantizedNvfp4(code, scale, global);
      }
      return;
    }
    DecodeWords(side_.format, words, x);
    if (global == 1.0f) return;
    KVILT_UNROLLED
    for (float& value : x) {
      value = contract::IsNan(value) ? QuietNan(value) : contract::Dequantized(value, global);
    }
  }

  const DequantizeArgs& args_;
  const contract::RowParams& rows_;
  const contract::SideParams& side_;
};

// Every thread of blocks of kWriterThreads, any grid.
inline void Dequantize(const DequantizeArgs& args) {
  WaitForPrevious();
  const contract::DequantizeParams& params = args.params;
  SideReader(args, params.k_rows, params.k)
      .Run(SideShare(0, params.tokens, params.kv_heads, params.k.head_dim));
  SideReader(args, params.v_rows, params.v)
      .Run(SideShare(1, params.tokens, params.kv_heads, params.v.head_dim));
  LetNextStart();
}

}  // namespace kvilt::kernels
