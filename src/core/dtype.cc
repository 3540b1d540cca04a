#include "kvilt/dtype.h"

#include <array>
#include <utility>

namespace kvilt {
namespace {

constexpr std::array<std::string_view, 9> kNames = {"f32",   "bf16", "f16", "e4m3", "e5m2",
                                                    "nvfp4", "u8",   "i32", "i64"};
constexpr std::array<std::pair<std::string_view, DType>, 9> kAliases = {{
    {"fp32", DType::kF32},
    {"float", DType::kF32},
    {"fp16", DType::kF16},
    {"half", DType::kF16},
    {"bfloat16", DType::kBF16},
    {"fp8", DType::kE4M3},
    {"fp8_e4m3", DType::kE4M3},
    {"fp8_e5m2", DType::kE5M2},
    {"fp4", DType::kNVFP4},
}};

}  // namespace

std::string_view Name(DType dtype) {
  const auto index = static_cast<std::size_t>(dtype);
  return index < kNames.size() ? kNames[index] : "unknown dtype";
}

std::optional<DType> ParseDType(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<DType>(i);
  }
  for (const auto& [alias, dtype] : kAliases) {
    if (alias == name) return dtype;
  }
  return std::nullopt;
}

}  // namespace kvilt
