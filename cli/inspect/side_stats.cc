#include "cli/inspect/side_stats.h"

#include <algorithm>
#include <cmath>

#include "cli/inspect/side_view.h"

namespace kvilt::cli {
namespace {

constexpr std::uint8_t kMaxScaleByte = 0x7E;  // 448

bool HasSignedZero(const std::uint8_t* codes) {
  for (int i = 0; i < kBlockElements / 2; ++i) {
    if ((codes[i] & 0x0F) == 0x08 || (codes[i] & 0xF0) == 0x80) return true;
  }
  return false;
}

void CountScales(const SideView& view, const RowSpan& span, std::int64_t head, ScaleStats& stats) {
  for (std::int64_t token = span.begin; token < span.end; ++token) {
    const std::uint8_t* row = view.Row(span.page, token, head);
    for (std::int64_t block = 0; block < view.row_blocks(); ++block) {
      const std::uint8_t byte = view.Scale(span.page, token, head, block);
      const std::uint8_t magnitude = byte & 0x7F;
      stats.blocks += 1;
      stats.histogram[byte] += 1;
      stats.nan += magnitude == 0x7F;
      stats.negative += byte > 0x80 && magnitude != 0x7F;
      stats.at_max += magnitude == kMaxScaleByte;
      stats.zero += magnitude == 0;
      stats.flushed += magnitude == 0 && HasSignedZero(row + block * kBlockElements / 2);
    }
  }
}

void SummarizeScales(ScaleStats& stats) {
  for (std::uint8_t byte = 1; byte <= kMaxScaleByte; ++byte) {
    if (stats.histogram[byte] == 0) continue;
    if (stats.min == 0) stats.min = DecodeScaleByte(byte);
    stats.max = DecodeScaleByte(byte);
  }
}

// The largest finite magnitude where elements clip on their own; 0 elsewhere.
double ClipMagnitude(DType dtype) {
  if (dtype == DType::kE4M3) return 448;
  if (dtype == DType::kE5M2) return 57344;
  return 0;
}

}  // namespace

SideStats MeasureSide(const CacheSide& side, std::span<const RowSpan> spans) {
  SideStats stats;
  const SideView view(side);
  const double clip = ClipMagnitude(side.data.dtype);
  std::vector<double> row(static_cast<std::size_t>(view.head_dim()));
  for (std::int64_t head = 0; head < view.heads(); ++head) {
    HeadMagnitude magnitude;
    double squares = 0;
    std::int64_t finite = 0;
    for (const RowSpan& span : spans) {
      for (std::int64_t token = span.begin; token < span.end; ++token) {
        view.Decode(span.page, token, head, row);
        for (const double x : row) {
          stats.zero += x == 0;
          stats.nan += std::isnan(x);
          stats.infinite += std::isinf(x);
          stats.at_max += clip > 0 && std::fabs(x) == clip;
          if (!std::isfinite(x)) continue;
          magnitude.max_abs = std::max(magnitude.max_abs, std::fabs(x));
          squares += x * x;
          finite += 1;
        }
        stats.elements += view.head_dim();
      }
      if (side.data.dtype == DType::kNVFP4) CountScales(view, span, head, stats.scales);
    }
    const double global = view.global(head);
    magnitude.max_abs *= std::fabs(global);
    magnitude.rms =
        finite > 0 ? std::sqrt(squares / static_cast<double>(finite)) * std::fabs(global) : 0;
    stats.heads.push_back(magnitude);
  }
  SummarizeScales(stats.scales);
  return stats;
}

}  // namespace kvilt::cli
