// Blocks of up to 16 consecutive elements of a row, between memory, registers and f32: what the
// kernels that write and read caches have in common.
//
// NaN: x86 keeps the payload of an operand, a GPU's arithmetic does not. So NaN go around every
// product and quotient here, and results are the same bits as those of src/cpu.
#pragma once

#include "append_params.h"
#include "formats.h"
#include "side_address.h"
#include "simt.cuh"

namespace kvilt::kernels {

using contract::Format;
using namespace simt;  // NOLINT: the machine's words.

inline constexpr i32 kBlockElements = contract::kNvfp4Block;
inline constexpr i32 kBlockWords = 16;  // Room for 16 elements of f32.

// One load or store.
template <i32 kWords>
struct alignas(4 * kWords) WordPiece {
  u32 words[kWords];
};
template <i32 kWords>
inline bool InPieces(const void* p, i32 bytes) {
  const u64 bits = reinterpret_cast<u64>(p) | static_cast<u64>(bytes);
  return bits % sizeof(WordPiece<kWords>) == 0;
}

constexpr i32 BytesOfElements(i32 format, i32 count) {
  switch (static_cast<Format>(format)) {
    case Format::kF32:
      return 4 * count;
    case Format::kBF16:
    case Format::kF16:
      return 2 * count;
    case Format::kNVFP4:
      return count / 2;
    default:
      return count;
  }
}

template <i32 kWords>
inline void LoadPieces(const u8* from, i32 bytes, u32 (&words)[kBlockWords]) {
  KVILT_UNROLLED
  for (i32 i = 0; i < kBlockWords; i += kWords) {
    WordPiece<kWords> piece = {};
    if (4 * i < bytes) piece = *reinterpret_cast<const WordPiece<kWords>*>(from + 4 * i);
    KVILT_UNROLLED
    for (i32 w = 0; w < kWords; ++w) words[i + w] = piece.words[w];
  }
}
template <i32 kWords>
inline void StorePieces(const u32 (&words)[kBlockWords], i32 bytes, u8* to) {
  KVILT_UNROLLED
  for (i32 i = 0; i < kBlockWords; i += kWords) {
    WordPiece<kWords> piece;
    KVILT_UNROLLED
    for (i32 w = 0; w < kWords; ++w) piece.words[w] = words[i + w];
    if (4 * i < bytes) *reinterpret_cast<WordPiece<kWords>*>(to + 4 * i) = piece;
  }
}

// No alignment needed; fast where the address is a multiple of 16, or of 8. Words past `bytes`
// are 0.
inline void LoadWords(const u8* from, i32 bytes, u32 (&words)[kBlockWords]) {
  if (InPieces<4>(from, bytes)) return LoadPieces<4>(from, bytes, words);
  if (InPieces<2>(from, bytes)) return LoadPieces<2>(from, bytes, words);
  KVILT_UNROLLED
  for (i32 i = 0; i < kBlockWords; ++i) {
    words[i] = 0;
    for (i32 b = 0; b < 4; ++b) {
      if (4 * i + b < bytes) words[i] |= static_cast<u32>(from[4 * i + b]) << (8 * b);
    }
  }
}

inline void StoreWords(const u32 (&words)[kBlockWords], i32 bytes, u8* to) {
  if (InPieces<4>(to, bytes)) return StorePieces<4>(words, bytes, to);
  if (InPieces<2>(to, bytes)) return StorePieces<2>(words, bytes, to);
  KVILT_UNROLLED
  for (i32 i = 0; i < kBlockWords; ++i) {
    for (i32 b = 0; b < 4; ++b) {
      if (4 * i + b < bytes) to[4 * i + b] = static_cast<u8>(words[i] >> (8 * b));
    }
  }
}

// Calls visit(i, shift, word index) of each element that is `kBits` wide.
template <i32 kBits, class Visit>
inline void ForEachElement(Visit&& visit) {
  KVILT_UNROLLED
  for (i32 i = 0; i < kBlockElements; ++i) visit(i, i * kBits % 32, i * kBits / 32);
}

// Exact. Every format but kNVFP4.
inline void DecodeWords(i32 format, const u32 (&words)[kBlockWords], float (&x)[kBlockElements]) {
  switch (static_cast<Format>(format)) {
    case Format::kF32:
      ForEachElement<32>([&](i32 i, i32, i32 w) { x[i] = contract::BitsFloat(words[w]); });
      return;
    case Format::kBF16:
      ForEachElement<16>([&](i32 i, i32 shift, i32 w) {
        x[i] = contract::DecodeBF16(static_cast<u16>(words[w] >> shift));
      });
      return;
    case Format::kF16:
      ForEachElement<16>([&](i32 i, i32 shift, i32 w) {
        x[i] = contract::DecodeF16(static_cast<u16>(words[w] >> shift));
      });
      return;
    case Format::kE4M3:
      ForEachElement<8>([&](i32 i, i32 shift, i32 w) {
        x[i] = contract::DecodeE4M3(static_cast<u8>(words[w] >> shift));
      });
      return;
    default:
      ForEachElement<8>([&](i32 i, i32 shift, i32 w) {
        x[i] = contract::DecodeE5M2(static_cast<u8>(words[w] >> shift));
      });
      return;
  }
}

// Nearest even, fp8 saturating. Every format but kNVFP4.
inline void EncodeWords(i32 format, const float (&x)[kBlockElements], u32 (&words)[kBlockWords]) {
  KVILT_UNROLLED
  for (u32& word : words) word = 0;
  switch (static_cast<Format>(format)) {
    case Format::kF32:
      ForEachElement<32>([&](i32 i, i32, i32 w) { words[w] = contract::FloatBits(x[i]); });
      return;
    case Format::kBF16:
      ForEachElement<16>([&](i32 i, i32 shift, i32 w) {
        words[w] |= static_cast<u32>(contract::EncodeBF16(x[i])) << shift;
      });
      return;
    case Format::kF16:
      ForEachElement<16>([&](i32 i, i32 shift, i32 w) {
        words[w] |= static_cast<u32>(contract::EncodeF16(x[i])) << shift;
      });
      return;
    case Format::kE4M3:
      ForEachElement<8>([&](i32 i, i32 shift, i32 w) {
        words[w] |= static_cast<u32>(contract::EncodeE4M3(x[i])) << shift;
      });
      return;
    default:
      ForEachElement<8>([&](i32 i, i32 shift, i32 w) {
        words[w] |= static_cast<u32>(contract::EncodeE5M2(x[i])) << shift;
      });
      return;
  }
}

// What arithmetic on a NaN gives on a CPU.
constexpr float QuietNan(float nan) {
  return contract::BitsFloat(contract::FloatBits(nan) | 0x400000u);
}

// A share of the blocks of one side: threads of the launch take them in turn. With more than one
// thread block the first half of the grid serves K and the second V.
class SideShare {
 public:
  SideShare(i32 side, i64 tokens, i64 heads, i32 head_dim)
      : head_dim_(head_dim), row_blocks_(contract::CeilDiv(head_dim, kBlockElements)) {
    const i32 v_blocks = GridBlocks() / 2;
    const i32 k_blocks = GridBlocks() - v_blocks;
    const i32 blocks = side == 0 || v_blocks == 0 ? k_blocks : v_blocks;
    const i32 own = side == 0 || v_blocks == 0 ? BlockIndex() : BlockIndex() - k_blocks;
    heads_ = heads;
    step_ = i64{blocks} * BlockThreads();
    if (own < 0 || own >= blocks) return;  // A block of the other side: nothing to do here.
    end_ = tokens * heads * row_blocks_;
    next_ = i64{own} * BlockThreads() + ThreadIndex();
  }

  // False: this thread is done. The members below speak of the block it stands at.
  bool Next() {
    if (next_ >= end_) return false;
    block = static_cast<i32>(next_ % row_blocks_);
    token = next_ / row_blocks_ / heads_;
    head = next_ / row_blocks_ % heads_;
    count = contract::Min(kBlockElements, head_dim_ - block * kBlockElements);
    next_ += step_;
    return true;
  }

  i64 token = 0;
  i64 head = 0;
  i32 block = 0;  // Of the row.
  i32 count = 0;  // Elements.

 private:
  i32 head_dim_, row_blocks_;
  i64 heads_ = 0, step_ = 0, end_ = 0, next_ = 0;
};

}  // namespace kvilt::kernels
