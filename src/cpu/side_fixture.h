// For tests: a cache side in owned memory, every byte poisoned, addressed without the code under
// test (plain nested index arithmetic).
#pragma once

#include <vector>

#include "src/contract/attention_params.h"

namespace kvilt::cpu::test {

struct SideShape {
  contract::Format format = contract::Format::kBF16;
  contract::i64 pages = 3;
  contract::i64 page_size = 4;
  contract::i64 heads = 2;
  contract::i32 head_dim = 64;
  bool hnd = false;
  bool packed_scales = false;  // Rows of [data | scales]; else the scales lie behind all data.
  bool interleaved4 = false;
  contract::i64 padding = 0;  // Bytes between rows.
};

class SideFixture {
 public:
  static constexpr contract::u8 kPoison = 0xA5;

  SideFixture(const SideShape& shape, std::vector<float> globals)
      : shape_(shape), globals_(std::move(globals)) {
    const contract::i64 rows = shape.pages * shape.page_size * shape.heads;
    row_stride_ = DataBytes() + shape.padding + (shape.packed_scales ? ScaleBytes() : 0);
    scale_base_ = shape.packed_scales ? DataBytes() : rows * row_stride_;
    scale_row_stride_ = shape.packed_scales ? row_stride_ : ScaleBytes();
    const contract::i64 total =
        rows * row_stride_ + (shape.packed_scales ? 0 : rows * ScaleBytes());
    bytes.assign(static_cast<std::size_t>(total), kPoison);
  }

  contract::i64 DataBytes() const {
    using contract::Format;
    if (shape_.format == Format::kNVFP4) return shape_.head_dim / 2;
    if (shape_.format == Format::kF32) return shape_.head_dim * 4;
    return shape_.format >= Format::kE4M3 ? shape_.head_dim : shape_.head_dim * 2;
  }
  contract::i64 ScaleBytes() const {
    return shape_.format == contract::Format::kNVFP4 ? shape_.head_dim / 16 : 0;
  }

  contract::i64 RowIndex(contract::i64 slot, contract::i64 head) const {
    const contract::i64 page = slot / shape_.page_size;
    const contract::i64 entry = slot % shape_.page_size;
    if (shape_.hnd) return (page * shape_.heads + head) * shape_.page_size + entry;
    return (page * shape_.page_size + entry) * shape_.heads + head;
  }
  std::size_t DataAt(contract::i64 slot, contract::i64 head) const {
    return static_cast<std::size_t>(RowIndex(slot, head) * row_stride_);
  }
  // The formula of SEMANTICS section 1 written out.
  std::size_t ScaleAt(contract::i64 slot, contract::i64 head, contract::i64 block) const {
    const contract::i64 blocks = shape_.head_dim / 16;
    contract::i64 entry = slot % shape_.page_size;
    if (shape_.interleaved4) {
      const contract::i64 quarter = blocks / 4;
      const contract::i64 row = 4 * (entry / 4) + block / quarter;
      block = (block % quarter) * 4 + entry % 4;
      slot = slot / shape_.page_size * shape_.page_size + row;
    }
    return static_cast<std::size_t>(scale_base_ + RowIndex(slot, head) * scale_row_stride_ + block);
  }
  float Global(contract::i64 head) const {
    return globals_.size() == 1 ? globals_[0] : globals_[static_cast<std::size_t>(head)];
  }

  contract::SideParams Params() const {
    contract::SideParams side;
    side.data = bytes.data();
    side.global = globals_.data();
    side.global_per_head = globals_.size() > 1;
    side.format = static_cast<contract::i32>(shape_.format);
    side.head_dim = shape_.head_dim;
    side.page_stride = shape_.page_size * shape_.heads * row_stride_;
    side.token_stride = shape_.hnd ? row_stride_ : shape_.heads * row_stride_;
    side.head_stride = shape_.hnd ? shape_.page_size * row_stride_ : row_stride_;
    if (ScaleBytes() > 0) {
      side.scales = bytes.data() + scale_base_;
      side.interleaved4 = shape_.interleaved4;
      side.scale_page_stride = shape_.page_size * shape_.heads * scale_row_stride_;
      side.scale_token_stride = shape_.hnd ? scale_row_stride_ : shape_.heads * scale_row_stride_;
      side.scale_head_stride =
          shape_.hnd ? shape_.page_size * scale_row_stride_ : scale_row_stride_;
    }
    return side;
  }
  const SideShape& shape() const { return shape_; }

  std::vector<contract::u8> bytes;

 private:
  SideShape shape_;
  std::vector<float> globals_;
  contract::i64 row_stride_ = 0;
  contract::i64 scale_base_ = 0;
  contract::i64 scale_row_stride_ = 0;
};

}  // namespace kvilt::cpu::test
