#include "cli/inspect/side_view.h"

#include <cstddef>
#include <cstring>
#include <vector>

#include "src/oracle/decode.h"

namespace kvilt::cli {
namespace {

std::vector<double> MakeTable(DType dtype) {
  std::vector<double> table(std::size_t{1} << (8 * StorageBytes(dtype)));
  for (std::size_t bits = 0; bits < table.size(); ++bits) {
    table[bits] = oracle::DecodeFloat(dtype, static_cast<std::uint32_t>(bits));
  }
  return table;
}

// Every value of an 8 or 16-bit type.
const double* ValuesOf(DType dtype) {
  static const std::vector<double> e4m3 = MakeTable(DType::kE4M3);
  static const std::vector<double> e5m2 = MakeTable(DType::kE5M2);
  static const std::vector<double> bf16 = MakeTable(DType::kBF16);
  static const std::vector<double> f16 = MakeTable(DType::kF16);
  switch (dtype) {
    case DType::kE4M3:
      return e4m3.data();
    case DType::kE5M2:
      return e5m2.data();
    case DType::kBF16:
      return bf16.data();
    default:
      return f16.data();
  }
}

template <class T>
T LoadAs(const std::uint8_t* bytes, std::int64_t i) {
  T value;
  std::memcpy(&value, bytes + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

}  // namespace

double DecodeScaleByte(std::uint8_t byte) { return ValuesOf(DType::kE4M3)[byte]; }

bool SideReadable(const CacheSide& side) {
  if (side.scale_layout != ScaleLayout::kInterleaved4) return true;
  const int token_axis = side.layout == KvLayout::kHND ? 2 : 1;
  return side.data.rank == 4 && side.data.shape[token_axis] % 4 == 0 &&
         side.scales.shape[3] % 4 == 0;
}

SideView::SideView(const CacheSide& side)
    : side_(side),
      paged_(side.data.rank == 4),
      token_axis_((paged_ ? 1 : 0) + (side.layout == KvLayout::kHND ? 1 : 0)),
      head_axis_((paged_ ? 1 : 0) + (side.layout == KvLayout::kHND ? 0 : 1)),
      heads_(side.data.shape[head_axis_]),
      head_dim_(side.data.shape[side.data.rank - 1] * (side.data.dtype == DType::kNVFP4 ? 2 : 1)) {}

double SideView::global(std::int64_t head) const {
  if (side_.global.array == nullptr) return side_.global.value;
  return side_.global.array[side_.global.array_size == 1 ? 0 : head];
}

const std::uint8_t* SideView::At(const TensorView& view, std::int64_t page, std::int64_t token,
                                 std::int64_t head) const {
  const std::int64_t offset = (paged_ ? page * view.stride[0] : 0) +
                              token * view.stride[token_axis_] + head * view.stride[head_axis_];
  return static_cast<const std::uint8_t*>(view.data) + offset * StorageBytes(view.dtype);
}

std::uint8_t SideView::Scale(std::int64_t page, std::int64_t token, std::int64_t head,
                             std::int64_t block) const {
  if (side_.scale_layout == ScaleLayout::kLinear) return Scales(page, token, head)[block];
  const std::int64_t quarter = row_blocks() / 4;
  const std::int64_t row = token / 4 * 4 + block / quarter;
  return Scales(page, row, head)[block % quarter * 4 + token % 4];
}

void SideView::Decode(std::int64_t page, std::int64_t token, std::int64_t head,
                      std::span<double> out) const {
  const std::uint8_t* row = Row(page, token, head);
  const DType dtype = side_.data.dtype;
  const double* values = ValuesOf(dtype);
  for (std::int64_t i = 0; i < head_dim_; ++i) {
    double& value = out[static_cast<std::size_t>(i)];
    if (dtype == DType::kNVFP4) {
      const std::uint8_t scale = Scale(page, token, head, i / kBlockElements);
      value = oracle::DecodeE2M1(row[i / 2] >> (i % 2 * 4) & 0xF) * DecodeScaleByte(scale);
    } else if (dtype == DType::kF32) {
      value = static_cast<double>(LoadAs<float>(row, i));
    } else if (StorageBytes(dtype) == 2) {
      value = values[LoadAs<std::uint16_t>(row, i)];
    } else {
      value = values[row[i]];
    }
  }
}

}  // namespace kvilt::cli
