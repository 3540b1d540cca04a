// Small decode tables, from the one definition of the formats.
#pragma once

#include <array>
#include <cstdint>

#include "src/contract/formats.h"

namespace kvilt::cpu {

// 2 * e2m1, which is a small integer.
alignas(64) inline constexpr std::int8_t kDoubledE2M1[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                             0, -1, -2, -3, -4, -6, -8, -12};

constexpr std::array<float, 256> MakeE4M3Values() {
  std::array<float, 256> values{};
  for (int i = 0; i < 256; ++i) {
    values[static_cast<std::size_t>(i)] = contract::DecodeE4M3(static_cast<contract::u8>(i));
  }
  return values;
}
alignas(64) inline constexpr std::array<float, 256> kE4M3Values = MakeE4M3Values();

}  // namespace kvilt::cpu
