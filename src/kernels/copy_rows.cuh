// Copies rows of pages onto pages of the same cache, as src/api/copy_pages.cc does.
//
// A thread for each 16 bytes of a row. Row r of a page is only ever copied to row r of another, so
// threads need not wait for each other: each does the copies of its bytes in their order.
#pragma once

#include "append_args.h"
#include "simt.cuh"

namespace kvilt::kernels {

using namespace simt;  // NOLINT: the machine's words.

using contract::CopyRowsArgs;

class RowCopier {
 public:
  RowCopier(const CopyRowsArgs& args, const contract::CopiedTensor& tensor)
      : args_(args), tensor_(tensor) {}

  void Run() const {
    const i64 pieces = contract::CeilDiv(tensor_.row_bytes, kPiece);
    const i64 pages = args_.apart != 0 ? args_.copy_count : 1;
    const i64 all = pages * args_.heads * args_.page_size * pieces;
    const i64 step = i64{GridBlocks()} * BlockThreads();
    for (i64 i = i64{BlockIndex()} * BlockThreads() + ThreadIndex(); i < all; i += step) {
      const i64 line = i / pieces;
      const i64 row = line % args_.page_size;
      const i64 head = line / args_.page_size % args_.heads;
      const i64 begin = i % pieces * kPiece;
      u8* const at = tensor_.data + row * tensor_.token_stride + head * tensor_.head_stride + begin;
      const i64 bytes = contract::Min(kPiece, tensor_.row_bytes - begin);
      const i64 first = args_.apart != 0 ? line / args_.page_size / args_.heads : 0;
      const i64 end = args_.apart != 0 ? first + 1 : args_.copy_count;
      for (i64 c = first; c < end; ++c) {
        const contract::CopiedPage& copy = args_.copies[c];
        if (row >= contract::RoundUp(copy.rows, tensor_.granule)) continue;
        CopyPiece(at + copy.from * tensor_.page_stride, at + copy.to * tensor_.page_stride, bytes);
      }
    }
  }

 private:
  struct alignas(16) Piece {
    u32 words[4];
  };
  static constexpr i64 kPiece = sizeof(Piece);

  static void CopyPiece(const u8* from, u8* to, i64 bytes) {
    const u64 low = reinterpret_cast<u64>(from) | reinterpret_cast<u64>(to);
    if (((low | static_cast<u64>(bytes)) & 15u) == 0) {
      *reinterpret_cast<Piece*>(to) = *reinterpret_cast<const Piece*>(from);
      return;
    }
    for (i64 i = 0; i < bytes; ++i) to[i] = from[i];
  }

  const CopyRowsArgs& args_;
  const contract::CopiedTensor& tensor_;
};

// Every thread of blocks of kWriterThreads, any grid.
inline void CopyRows(const CopyRowsArgs& args) {
  WaitForPrevious();
  for (i32 t = 0; t < args.tensor_count; ++t) RowCopier(args, args.tensors[t]).Run();
  LetNextStart();
}

}  // namespace kvilt::kernels
