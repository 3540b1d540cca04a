// NVFP4 on the island: tables of e2m1, and the bytes of scale rows.
#pragma once

#include "src/cpu/avx512/words.h"

KVILT_AVX512_BEGIN
namespace kvilt::cpu::avx512 {

// bf16 of the 16 codes, twice: vpermw reads five bits of its index and the fifth may be anything.
constexpr std::array<u16, 32> MakeE2M1Words() {
  std::array<u16, 32> words{};
  for (std::size_t i = 0; i < 32; ++i) {
    words[i] = contract::EncodeBF16(contract::DecodeE2M1(static_cast<u32>(i)));
  }
  return words;
}
alignas(64) inline constexpr std::array<u16, 32> kE2M1Words = MakeE2M1Words();

// f32 of the 16 codes: vpermps reads four bits of its index.
constexpr std::array<float, 16> MakeE2M1Floats() {
  std::array<float, 16> floats{};
  for (std::size_t i = 0; i < 16; ++i) floats[i] = contract::DecodeE2M1(static_cast<u32>(i));
  return floats;
}
alignas(64) inline constexpr std::array<float, 16> kE2M1Floats = MakeE2M1Floats();

// Scale bytes [first_block, first_block + blocks) of 16 tokens, at most 4; lane t = dword of token
// t.
inline Vec LoadScaleBytes(const RowSource& source, int token, int first_block, int blocks) {
  alignas(64) u32 dwords[16] = {};
  if (blocks == 4) {
    for (int t = 0; t < 16; ++t) {
      __builtin_memcpy(dwords + t, source.scale_row(token + t) + first_block, 4);
    }
  } else {
    for (int t = 0; t < 16; ++t) {
      for (int b = 0; b < blocks; ++b) {
        dwords[t] |= u32{source.scale_row(token + t)[first_block + b]} << (8 * b);
      }
    }
  }
  return _mm512_load_si512(dwords);
}

}  // namespace kvilt::cpu::avx512
KVILT_AVX512_END
