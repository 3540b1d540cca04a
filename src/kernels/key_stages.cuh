// Keys on their way from the cache to operand tiles, a stage of kv_rows keys at a time.
//
//   page table -> KeyPlace ring -> asynchronous copies -> ring of packed stages -> operand tiles
//
// A stage lies in one segment. Keys that it lacks (beyond its end, or of an absent page) are zeros.
#pragma once

#include "attention_args.h"
#include "decode.cuh"
#include "operand_tile.h"
#include "rotate.cuh"
#include "side_address.h"
#include "simt.cuh"

namespace kvilt::kernels {

using contract::AttentionArgs;
using contract::KeyPlace;
using contract::SegmentParams;
using contract::SideParams;
using contract::SmemPart;
using contract::TileShape;

// Keys [begin, end) of one segment, and where its table starts.
struct SegmentKeys {
  const SegmentParams* segment = nullptr;
  i64 first = 0;        // Table entry of its page 0 (kRagged: row of its token 0).
  i64 segment_key = 0;  // Absolute key of token 0.
  i64 begin = 0;        // Absolute.
  i64 end = 0;
  i64 position_begin = 0;  // RoPE: entry of key 0 in the key positions.
  i32 kv_head = 0;

  i32 Stages(i32 kv_rows) const {
    return end <= begin ? 0 : static_cast<i32>(contract::CeilDiv<i64>(end - begin, kv_rows));
  }
};

// The largest copy that divides a row of `bytes` and that the plan found aligned.
constexpr i32 CopyWidth(i32 bytes, i32 copy_bytes) {
  i32 width = copy_bytes;
  while (bytes % width != 0) width /= 2;
  return width;
}

template <TileShape kTile>
class KeyStages {
 public:
  static constexpr i32 kKeys = kTile.kv_rows;
  static constexpr i32 kThreads = contract::Threads(kTile);
  static constexpr i32 kPlaces = contract::KeyPlaceStages(kTile);

  explicit KeyStages(u8* shared) : shared_(shared) {}

  // ---- places

  // A key's table entry on its way from memory: nothing looks at it before Publish.
  struct Entry {
    i64 page = 0;
    i64 pages = -1;  // Of the cache; negative: no key.
    i32 entry = 0;
  };

  // Looks up the thread's key of stage n; threads below kKeys have one. `seen(key)`: whether a row
  // of the tile sees this absolute key; others are never read.
  template <class Seen>
  Entry LookUp(const SegmentKeys& keys, i32 n, Seen&& seen) const {
    Entry out;
    const i32 t = ThreadIndex();
    const i64 key = keys.begin + i64{n} * kKeys + t;
    if (t < kKeys && key < keys.end && seen(key)) {
      Find(*keys.segment, keys.first, key - keys.segment_key, out);
    }
    return out;
  }
  // Writes what LookUp found to the ring of places.
  void Publish(const AttentionArgs& args, i32 n, const Entry& found) const {
    static_assert(kKeys % 16 == 0 && kKeys <= 128);
    const i32 t = ThreadIndex();
    if (t >= contract::RoundUp(kKeys, 32)) return;
    const bool none = found.pages < 0;
    const bool absent = !none && (found.page < 0 || found.page >= found.pages);
    const u32 any = Ballot(absent);
    if (t < kKeys) {
      const i32 page = none     ? contract::kNoKey
                       : absent ? contract::kAbsentKey
                                : static_cast<i32>(found.page);
      Places(n)[t] = {page, found.entry};
    }
    if ((t & 31) == 0) {
      Flags(n)[t / 32] = any;
      if (any != 0) {
        StoreFirst(args.error, static_cast<u32>(contract::DeviceError::kAbsentPage));
      }
    }
  }
  const KeyPlace* PlacesOf(i32 n) const { return Places(n); }
  bool AnyAbsent(i32 n) const {
    u32 any = 0;
    for (i32 i = 0; i < contract::CeilDiv(kKeys, 32); ++i) any |= Flags(n)[i];
    return any != 0;
  }

  // ---- copies

  // Starts the copies of stage n into its slot. All threads; places of n must be published.
  void Copy(const SegmentKeys& keys, i32 n) const {
    const SegmentParams& segment = *keys.segment;
    const KeyPlace* places = Places(n);
    const i32 slot = n % kTile.stages;
    CopyCodes<kTile.k_format, kTile.head_dim_qk, !contract::NeedsKOperand(kTile)>(
        segment.k, keys.kv_head, places, KCodes(slot));
    CopyCodes<kTile.v_format, kTile.head_dim_vo, !contract::NeedsVOperand(kTile)>(
        segment.v, keys.kv_head, places, VCodes(slot));
    CopyScales<kTile.k_format, kTile.head_dim_qk>(segment.k, keys.kv_head, places, KScales(slot));
    CopyScales<kTile.v_format, kTile.head_dim_vo>(segment.v, keys.kv_head, places, VScales(slot));
  }

  // ---- operands

  // Decodes stage n into the operand tiles of the sides that need one. All threads; the stage must
  // have arrived.
  void Decode(const AttentionArgs& args, const SegmentKeys& keys, i32 n) const {
    const i32 slot = n % kTile.stages;
    const SegmentParams& segment = *keys.segment;
    if constexpr (kTile.k_parts > 1) {
      RotateKeys<kTile>(args.params, segment.k.format, KCodes(slot), KScales(slot),
                        keys.begin + i64{n} * kKeys, keys.end, keys.position_begin,
                        Part(SmemPart::kKOperand));
    } else if constexpr (contract::NeedsKOperand(kTile)) {
      DecodeSide<kTile.k_format, kTile.head_dim_qk>(segment.k.format, KCodes(slot), KScales(slot),
                                                    Part(SmemPart::kKOperand));
    }
    if constexpr (contract::NeedsVOperand(kTile)) {
      DecodeSide<kTile.v_format, kTile.head_dim_vo>(segment.v.format, VCodes(slot), VScales(slot),
                                                    Part(SmemPart::kVOperand));
    }
  }
  const u8* KOperand(i32 n) const {
    if constexpr (contract::NeedsKOperand(kTile)) return Part(SmemPart::kKOperand);
    return KCodes(n % kTile.stages);
  }
  const u8* VOperand(i32 n) const {
    if constexpr (contract::NeedsVOperand(kTile)) return Part(SmemPart::kVOperand);
    return VCodes(n % kTile.stages);
  }

 private:
  u8* Part(SmemPart part) const { return shared_ + contract::SmemOffset(kTile, part); }
  u8* Slot(SmemPart part, i32 slot) const {
    return Part(part) + slot * (contract::SmemPartBytes(kTile, part) / kTile.stages);
  }
  u8* KCodes(i32 slot) const { return Slot(SmemPart::kK, slot); }
  u8* VCodes(i32 slot) const { return Slot(SmemPart::kV, slot); }
  u8* KScales(i32 slot) const { return Slot(SmemPart::kKScales, slot); }
  u8* VScales(i32 slot) const { return Slot(SmemPart::kVScales, slot); }
  KeyPlace* Places(i32 n) const {
    return reinterpret_cast<KeyPlace*>(Part(SmemPart::kKeys)) + n % kPlaces * kKeys;
  }
  u32* Flags(i32 n) const {
    u8* const flags = Part(SmemPart::kKeys) + kPlaces * kKeys * contract::kKeyPlaceBytes;
    return reinterpret_cast<u32*>(flags + n % kPlaces * contract::kStageFlagBytes);
  }

  static void Find(const SegmentParams& segment, i64 first, i64 token, Entry& out) {
    if (segment.table == static_cast<i32>(contract::TableKind::kRagged)) {
      out = {0, 1, static_cast<i32>(first + token)};
      return;
    }
    const u32 size = static_cast<u32>(segment.page_size);
    const u32 page = static_cast<u32>(token) / size;
    out.entry = static_cast<i32>(static_cast<u32>(token) - page * size);
    out.pages = segment.pages;
    out.page = contract::LoadIndex(segment.indices, segment.index_is_i64, first + page);
  }

  // One row's piece of kWidth bytes; narrow ones go through a register.
  template <i32 kWidth>
  static void CopyPiece(u8* to, const u8* from, bool present) {
    if constexpr (kWidth >= 4) {
      CopyAsync<kWidth>(to, from, present);
    } else if constexpr (kWidth == 2) {
      *reinterpret_cast<u16*>(to) = present ? *reinterpret_cast<const u16*>(from) : u16{0};
    } else {
      *to = present ? *from : u8{0};
    }
  }

  template <i32 kFormat, i32 kDim, bool kAsOperand>
  static void CopyCodes(const SideParams& side, i32 head, const KeyPlace* places, u8* to) {
    if constexpr (kFormat == contract::kAnyFormat) {
      // Room for 16 bits each; what the segment has lies densely at the front of its row.
      const i32 bytes = contract::CodeBytes(side.format, kDim);
      CopyAnyRows<CopyWidth(kDim / 2, kTile.copy_bytes)>(side, head, places, bytes, kDim * 2, to);
    } else {
      constexpr i32 kBytes = contract::CodeBytes(kFormat, kDim);
      CopyRows<CopyWidth(kBytes, kTile.copy_bytes), kAsOperand, kDim, kBytes>(side, head, places,
                                                                              to);
    }
  }

  // Calls visit(key, piece, i) for the thread's share of kPieces pieces of every key. Where the
  // threads divide evenly, `piece` is the same in all calls and key grows by a constant, so that
  // addresses cost an addition; `i` counts these calls.
  template <i32 kPieces, class Visit>
  static void ForEachPiece(Visit&& visit) {
    if constexpr (kThreads % kPieces == 0) {
      constexpr i32 kStride = kThreads / kPieces;
      const i32 first = ThreadIndex() / kPieces;
      const i32 piece = ThreadIndex() % kPieces;
      KVILT_UNROLLED
      for (i32 i = 0; i < contract::CeilDiv(kKeys, kStride); ++i) {
        const i32 key = first + i * kStride;
        if (kKeys % kStride == 0 || key < kKeys) visit(key, piece, i);
      }
    } else {
      for (i32 i = ThreadIndex(); i < kKeys * kPieces; i += kThreads) {
        visit(i / kPieces, i % kPieces, 0);
      }
    }
  }

  // Byte offset of a chunk in an operand tile, for ForEachPiece over kPieces: rows a multiple of 8
  // apart lie alike, so all calls share the first one's turn.
  template <i32 kPieces, i32 kChunks>
  static i32 OperandOffset(i32 key, i32 chunk, i32 i) {
    constexpr i32 kStride = kThreads % kPieces == 0 ? kThreads / kPieces : 1;
    if constexpr (kStride % 8 == 0) {
      const i32 first = contract::OperandChunk(key - i * kStride, chunk, kChunks);
      return (first + i * kStride * kChunks) * contract::kChunkBytes;
    }
    return contract::OperandChunk(key, chunk, kChunks) * contract::kChunkBytes;
  }

  // Where a key's row begins. Strides fit 32 bits (the planner sees to it), products do not.
  static const u8* RowAt(const u8* base, KeyPlace place, i64 page_stride, i64 token_stride) {
    const u32 page = static_cast<u32>(contract::Max(place.page, 0));  // Others are not read.
    return base + u64{page} * static_cast<u32>(page_stride) +
           u64{static_cast<u32>(place.entry)} * static_cast<u32>(token_stride);
  }

  // kAsOperand: in the order of an operand tile.
  template <i32 kWidth, bool kAsOperand, i32 kDim, i32 kBytes>
  static void CopyRows(const SideParams& side, i32 head, const KeyPlace* places, u8* to) {
    constexpr i32 kPieces = kBytes / kWidth;
    const u8* const base = side.data + head * side.head_stride;
    ForEachPiece<kPieces>([&](i32 key, i32 piece, i32 i) {
      const KeyPlace place = places[key];
      i32 offset = key * kBytes + piece * kWidth;
      if constexpr (kAsOperand) {
        offset =
            OperandOffset<kPieces, kDim / 8>(key, piece * kWidth / 16, i) + piece * kWidth % 16;
      }
      const u8* const row = RowAt(base, place, side.page_stride, side.token_stride);
      CopyPiece<kWidth>(to + offset, row + piece * kWidth, place.page >= 0);
    });
  }
  // The same for rows of a format known at run time, room for `row_bytes` each.
  template <i32 kWidth>
  static void CopyAnyRows(const SideParams& side, i32 head, const KeyPlace* places, i32 bytes,
                          i32 row_bytes, u8* to) {
    const u8* const base = side.data + head * side.head_stride;
    const i32 pieces = bytes / kWidth;
    for (i32 i = ThreadIndex(); i < kKeys * pieces; i += kThreads) {
      const i32 key = i / pieces;
      const i32 at = (i - key * pieces) * kWidth;
      const KeyPlace place = places[key];
      const u8* const row = RowAt(base, place, side.page_stride, side.token_stride);
      CopyPiece<kWidth>(to + key * row_bytes + at, row + at, place.page >= 0);
    }
  }

  template <i32 kFormat, i32 kDim>
  static void CopyScales(const SideParams& side, i32 head, const KeyPlace* places, u8* to) {
    if constexpr (contract::ScaleBytes(kFormat, kDim) > 0) {
      constexpr i32 kBlocks = kDim / contract::kBlockOfScale;
      if (side.format != static_cast<i32>(Format::kNVFP4)) return;
      if (side.interleaved4) {
        CopyInterleavedScales<kBlocks>(side, head, places, to);
      } else {
        CopyScalePieces<CopyWidth(kBlocks, kTile.copy_bytes), kBlocks>(side, head, places, to);
      }
    }
  }
  template <i32 kWidth, i32 kBlocks>
  static void CopyScalePieces(const SideParams& side, i32 head, const KeyPlace* places, u8* to) {
    constexpr i32 kPieces = kBlocks / kWidth;
    const u8* const base = side.scales + head * side.scale_head_stride;
    ForEachPiece<kPieces>([&](i32 key, i32 piece, i32) {
      const KeyPlace place = places[key];
      const u8* const row = RowAt(base, place, side.scale_page_stride, side.scale_token_stride);
      CopyPiece<kWidth>(to + key * kBlocks + piece * kWidth, row + piece * kWidth, place.page >= 0);
    });
  }
  // interleaved4: byte by byte, to linear order.
  template <i32 kBlocks>
  static void CopyInterleavedScales(const SideParams& side, i32 head, const KeyPlace* places,
                                    u8* to) {
    for (i32 i = ThreadIndex(); i < kKeys * kBlocks; i += kThreads) {
      const i32 key = i / kBlocks;
      const i32 block = i - key * kBlocks;
      const KeyPlace place = places[key];
      u8 scale = 0;
      if (place.page >= 0) {
        scale = side.scales[contract::ScaleOffset(side, place.page, place.entry, head, block)];
      }
      to[i] = scale;
    }
  }

  template <i32 kFormat, i32 kDim>
  static void DecodeSide(i32 format, const u8* codes, const u8* scales, u8* operand) {
    constexpr bool kAny = kFormat == contract::kAnyFormat;
    if constexpr (!kAny) format = kFormat;
    constexpr i32 kBlocks = kDim / 16;
    const i32 row_bytes = contract::CodeBytes(kFormat, kDim);
    const i32 block_bytes = contract::CodeBytes(format, 16);
    ForEachPiece<kBlocks>([&](i32 key, i32 block, i32 i) {
      u32 scale = 0;
      if (contract::ScaleBytes(kFormat, kDim) > 0) scale = scales[key * kBlocks + block];
      u32 pairs[8];
      DecodeBlock<!kAny>(format, codes + key * row_bytes + block * block_bytes, scale, pairs);
      KVILT_UNROLLED
      for (i32 half = 0; half < 2; ++half) {
        const i32 at = OperandOffset<kBlocks, kDim / 8>(key, 2 * block + half, i);
        StoreFour(reinterpret_cast<u32*>(operand + at), pairs[4 * half], pairs[4 * half + 1],
                  pairs[4 * half + 2], pairs[4 * half + 3]);
      }
    });
  }

  u8* const shared_;
};

}  // namespace kvilt::kernels
