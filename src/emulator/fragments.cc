#include "src/emulator/fragments.h"

#include <cstring>

#include "src/contract/formats.h"

namespace kvilt::emulator {

using contract::u16;
using contract::u32;

namespace {

// As contract::DecodeF16 (a test compares all), in a form that g++ makes vectors of.
struct F16 {
  static float Decode(u32 bits) {
    const u32 magnitude = bits & 0x7FFFu;
    constexpr float kRebias = contract::BitsFloat((127u + 112u) << 23);  // 2^(127 - 15)
    const u32 wide = contract::FloatBits(contract::BitsFloat(magnitude << 13) * kRebias);
    const u32 special = (0u - static_cast<u32>(magnitude >= 0x7C00u)) & contract::kF32Infinity;
    return contract::BitsFloat(wide | special | (bits & 0x8000u) << 16);
  }
};
struct BF16 {
  static float Decode(u32 bits) { return contract::BitsFloat(bits << 16); }
};

using Row = float __attribute__((vector_size(32)));  // Of b and of the sums.

// sum += x row
inline void AddProduct(Row& sum, float x, const float (&row)[8]) {
  Row r;
  std::memcpy(&r, row, sizeof(r));
  sum += x * r;
}

template <class Format>
void MultiplyAdd(float (&d)[4][32], const u32 (&in)[6][32]) {
  float low[6][32];  // Elements 2t and 2t + 1 of each register.
  float high[6][32];
  for (int r = 0; r < 6; ++r) {
    for (int lane = 0; lane < 32; ++lane) low[r][lane] = Format::Decode(in[r][lane] & 0xFFFFu);
    for (int lane = 0; lane < 32; ++lane) high[r][lane] = Format::Decode(in[r][lane] >> 16);
  }
  alignas(sizeof(Row)) float b[16][8];
  for (int r = 0; r < 2; ++r) {
    for (int lane = 0; lane < 32; ++lane) {
      b[8 * r + 2 * (lane % 4)][lane / 4] = low[4 + r][lane];
      b[8 * r + 2 * (lane % 4) + 1][lane / 4] = high[4 + r][lane];
    }
  }
  for (int row = 0; row < 16; ++row) {
    const int first = row % 8 * 4;  // Lane.
    const int half = row / 8;       // Registers half and half + 2.
    Row even = {};
    Row odd = {};
    for (int k = 0; k < 16; k += 2) {
      const int r = half + k / 8 * 2;
      const int lane = first + k % 8 / 2;
      AddProduct(even, low[r][lane], b[k]);
      AddProduct(odd, high[r][lane], b[k + 1]);
    }
    even += odd;
    float sums[8];
    std::memcpy(sums, &even, sizeof(sums));
    for (int n = 0; n < 8; ++n) d[2 * half + n % 2][first + n / 2] += sums[n];
  }
}

}  // namespace

void MultiplyAddF16(float (&d)[4][32], const u32 (&in)[6][32]) { MultiplyAdd<F16>(d, in); }
void MultiplyAddBF16(float (&d)[4][32], const u32 (&in)[6][32]) { MultiplyAdd<BF16>(d, in); }

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
