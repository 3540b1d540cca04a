// Rows of a cache side as bytes and as numbers, by page, token and head, whatever the layout. The
// decoding is the oracle's: bytes are judged, not what a backend makes of them.
#pragma once

#include <cstdint>
#include <span>

#include "kvilt/kv_cache.h"

namespace kvilt::cli {

// The smallest positive e4m3 value, 2^-9.
inline constexpr double kSmallestScale = 0.001953125;

// An e4m3 byte; NaN for 0x7F and 0xFF.
double DecodeScaleByte(std::uint8_t byte);

// Whether the declared scale layout can be read at all: interleaved4 needs a paged side whose page
// size and head_dim / 16 are multiples of 4.
bool SideReadable(const CacheSide& side);

// REQUIRES: a side that LoadCacheFile accepts and SideReadable. Ragged caches are one page.
class SideView {
 public:
  explicit SideView(const CacheSide& side);

  std::int64_t heads() const { return heads_; }
  std::int64_t head_dim() const { return head_dim_; }
  std::int64_t row_blocks() const { return head_dim_ / kBlockElements; }
  double global(std::int64_t head) const;

  const std::uint8_t* Row(std::int64_t page, std::int64_t token, std::int64_t head) const {
    return At(side_.data, page, token, head);
  }
  // As stored: what they belong to depends on the scale layout. kNVFP4 only.
  const std::uint8_t* Scales(std::int64_t page, std::int64_t token, std::int64_t head) const {
    return At(side_.scales, page, token, head);
  }
  // The scale byte that belongs to a block of a token by the declared layout. kNVFP4 only.
  std::uint8_t Scale(std::int64_t page, std::int64_t token, std::int64_t head,
                     std::int64_t block) const;
  // Stored values of a row (codes times scales for kNVFP4), without the global. out: [head_dim]
  void Decode(std::int64_t page, std::int64_t token, std::int64_t head,
              std::span<double> out) const;

 private:
  const std::uint8_t* At(const TensorView& view, std::int64_t page, std::int64_t token,
                         std::int64_t head) const;

  const CacheSide& side_;
  bool paged_;
  int token_axis_;
  int head_axis_;
  std::int64_t heads_;
  std::int64_t head_dim_;
};

}  // namespace kvilt::cli
