// Element types. docs/formats.md specifies the bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kvilt {

enum class DType : std::uint8_t {
  kF32 = 0,
  kBF16 = 1,
  kF16 = 2,
  kE4M3 = 3,   // OCP e4m3fn: no infinity, NaN is 0x7F/0xFF, largest finite 448.
  kE5M2 = 4,   // OCP e5m2: largest finite 57344.
  kNVFP4 = 5,  // Two e2m1 codes per byte, plus one e4m3 scale per 16 elements in a second tensor.
  kU8 = 6,     // Mask bytes.
  kI32 = 7,
  kI64 = 8,
};

// "f32", "bf16", "f16", "e4m3", "e5m2", "nvfp4", "u8", "i32", "i64".
std::string_view Name(DType dtype);

// The inverse of Name; also accepts "fp32", "fp16", "half", "float", "bfloat16", "fp8" (= e4m3),
// "fp8_e4m3", "fp8_e5m2", "fp4". Empty optional for anything else.
std::optional<DType> ParseDType(std::string_view name);

// Bytes of one *storage element*, the unit of TensorView shapes and strides. A storage element of
// kNVFP4 is one byte and holds two codes: element 2i in the low nibble, 2i+1 in the high nibble.
constexpr int StorageBytes(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
      return 2;
    case DType::kI64:
      return 8;
    case DType::kE4M3:
    case DType::kE5M2:
    case DType::kNVFP4:
    case DType::kU8:
      return 1;
  }
  return 0;
}

// Storage elements of one row of `head_dim` values: head_dim / 2 for kNVFP4, else head_dim.
constexpr std::int64_t RowElements(DType dtype, std::int64_t head_dim) {
  return dtype == DType::kNVFP4 ? head_dim / 2 : head_dim;
}

// Elements that share one e4m3 scale (kNVFP4).
inline constexpr int kBlockElements = 16;

// True for the types that may store keys and values.
constexpr bool IsCacheDType(DType dtype) { return dtype <= DType::kNVFP4; }
// True for kE4M3, kE5M2, kNVFP4.
constexpr bool IsQuantized(DType dtype) {
  return dtype == DType::kE4M3 || dtype == DType::kE5M2 || dtype == DType::kNVFP4;
}

}  // namespace kvilt
