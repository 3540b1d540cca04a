#include "src/cpu/row_format.h"

#include <cstring>

#include "src/contract/formats.h"
#include "src/core/check.h"

namespace kvilt::cpu {

using contract::Format;
using contract::u16;
using contract::u8;

void LoadRow(const u8* source, Format format, int count, float* row) {
  u16 half = 0;
  switch (format) {
    case Format::kF32:
      std::memcpy(row, source, static_cast<std::size_t>(count) * sizeof(float));
      return;
    case Format::kBF16:
      for (int i = 0; i < count; ++i) {
        std::memcpy(&half, source + 2 * i, 2);
        row[i] = contract::DecodeBF16(half);
      }
      return;
    case Format::kF16:
      for (int i = 0; i < count; ++i) {
        std::memcpy(&half, source + 2 * i, 2);
        row[i] = contract::DecodeF16(half);
      }
      return;
    default:
      KVILT_CHECK(false && "rows are f32, bf16 or f16");
  }
}

void StoreRow(const float* row, Format format, int count, u8* target) {
  u16 half = 0;
  switch (format) {
    case Format::kF32:
      std::memcpy(target, row, static_cast<std::size_t>(count) * sizeof(float));
      return;
    case Format::kBF16:
      for (int i = 0; i < count; ++i) {
        half = contract::EncodeBF16(row[i]);
        std::memcpy(target + 2 * i, &half, 2);
      }
      return;
    case Format::kF16:
      for (int i = 0; i < count; ++i) {
        half = contract::EncodeF16(row[i]);
        std::memcpy(target + 2 * i, &half, 2);
      }
      return;
    default:
      KVILT_CHECK(false && "rows are f32, bf16 or f16");
  }
}

}  // namespace kvilt::cpu
