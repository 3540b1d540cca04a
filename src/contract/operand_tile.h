// Operand tiles: rows of 16-bit elements in shared memory as ldmatrix reads them.
#pragma once

#include "types.h"

namespace kvilt::contract {

inline constexpr i32 kChunkBytes = 16;  // Eight elements: one row of an 8x8 matrix.

// Where chunk `chunk` of row `row` lies, in chunks; rows have `chunks` of them (even). Eight rows
// of one chunk column fall into eight different 16-byte columns of the banks, for rows of 32, 64
// and every multiple of 128 bytes; other lengths meet at most four at once.
constexpr i32 OperandChunk(i32 row, i32 chunk, i32 chunks) {
  const i32 turn = chunks % 8 == 0 ? row & 7 : chunks % 4 == 0 ? (row >> 1) & 3 : (row >> 2) & 1;
  return row * chunks + (chunk ^ turn);
}

}  // namespace kvilt::contract
