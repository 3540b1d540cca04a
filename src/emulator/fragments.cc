#include "src/emulator/fragments.h"

#include <cstring>

#include "src/contract/formats.h"

namespace kvilt::emulator {

using contract::u16;
using contract::u32;

namespace {

// Decode: u32 with 16 bits -> float.
template <class Decode>
void MultiplyAdd(float (&d)[4][32], const u32 (&in)[6][32], Decode decode) {
  float low[6][32];  // Elements 2t and 2t + 1 of each register.
  float high[6][32];
  for (int r = 0; r < 6; ++r) {
    for (int lane = 0; lane < 32; ++lane) {
      low[r][lane] = decode(in[r][lane] & 0xFFFFu);
      high[r][lane] = decode(in[r][lane] >> 16);
    }
  }
  float b[16][8];
  for (int r = 0; r < 2; ++r) {
    for (int lane = 0; lane < 32; ++lane) {
      b[8 * r + 2 * (lane % 4)][lane / 4] = low[4 + r][lane];
      b[8 * r + 2 * (lane % 4) + 1][lane / 4] = high[4 + r][lane];
    }
  }
  for (int row = 0; row < 16; ++row) {
    const int first = row % 8 * 4;  // Lane.
    const int half = row / 8;       // Registers half and half + 2.
    float sums[8] = {};
    for (int k = 0; k < 16; k += 2) {
      const int r = half + k / 8 * 2;
      const int lane = first + k % 8 / 2;
      for (int n = 0; n < 8; ++n) sums[n] += low[r][lane] * b[k][n];
      for (int n = 0; n < 8; ++n) sums[n] += high[r][lane] * b[k + 1][n];
    }
    for (int n = 0; n < 8; ++n) d[2 * half + n % 2][first + n / 2] += sums[n];
  }
}

}  // namespace

void MultiplyAddF16(float (&d)[4][32], const u32 (&in)[6][32]) {
  MultiplyAdd(d, in, [](u32 bits) { return contract::DecodeF16(static_cast<u16>(bits)); });
}

void MultiplyAddBF16(float (&d)[4][32], const u32 (&in)[6][32]) {
  MultiplyAdd(d, in, [](u32 bits) { return contract::DecodeBF16(static_cast<u16>(bits)); });
}

void LoadRows(u32 (&out)[4][32], const void* const (&rows)[32]) {
  for (int row = 0; row < 32; ++row) std::memcpy(&out[row / 8][row % 8 * 4], rows[row], 16);
}

void LoadRowsTransposed(u32 (&out)[4][32], const void* const (&rows)[32]) {
  u32 in[4][32];
  LoadRows(in, rows);
  for (int i = 0; i < 4; ++i) Transpose(out[i], in[i]);
}

void Transpose(u32 (&out)[32], const u32 (&in)[32]) {
  u16 m[8][8];
  std::memcpy(m, in, sizeof(m));
  for (int lane = 0; lane < 32; ++lane) {
    const int column = lane / 4;
    const int row = lane % 4 * 2;
    out[lane] = static_cast<u32>(m[row + 1][column]) << 16 | m[row][column];
  }
}

}  // namespace kvilt::emulator
