#include "src/cpu/dequantize.h"

#include <algorithm>

#include "src/contract/formats.h"
#include "src/contract/side_address.h"
#include "src/core/check.h"
#include "src/cpu/float_mode.h"
#include "src/cpu/row_format.h"

namespace kvilt::cpu {
namespace {

using contract::Format;
using contract::i64;
using contract::SideParams;
using contract::u8;

constexpr i64 kElementsPerTask = 32768;
constexpr int kMaxRow = 1024;

void ReadNvfp4(const SideParams& side, i64 page, i64 entry, i64 head, float* row) {
  const u8* data = side.data + contract::DataOffset(side, page, entry, head);
  const float global = contract::GlobalOf(side, head);
  for (int block = 0; block < side.head_dim / contract::kNvfp4Block; ++block) {
    const u8 scale = side.scales[contract::ScaleOffset(side, page, entry, head, block)];
    const u8* codes = data + block * contract::kNvfp4BlockBytes;
    float* out = row + block * contract::kNvfp4Block;
    for (int i = 0; i < contract::kNvfp4BlockBytes; ++i) {
      out[2 * i] = contract::DequantizedNvfp4(codes[i], scale, global);
      out[2 * i + 1] = contract::DequantizedNvfp4(codes[i] >> 4, scale, global);
    }
  }
}

void ReadRow(const SideParams& side, i64 page, i64 entry, i64 head, float* row) {
  const Format format = static_cast<Format>(side.format);
  if (format == Format::kNVFP4) {
    ReadNvfp4(side, page, entry, head, row);
    return;
  }
  const u8* data = side.data + contract::DataOffset(side, page, entry, head);
  if (format == Format::kE4M3) {
    for (int i = 0; i < side.head_dim; ++i) row[i] = contract::DecodeE4M3(data[i]);
  } else if (format == Format::kE5M2) {
    for (int i = 0; i < side.head_dim; ++i) row[i] = contract::DecodeE5M2(data[i]);
  } else {
    LoadRow(data, format, side.head_dim, row);
  }
  const float global = contract::GlobalOf(side, head);
  if (global == 1.0f) return;
  for (int i = 0; i < side.head_dim; ++i) row[i] = contract::Dequantized(row[i], global);
}

void ReadToken(const contract::DequantizeParams& params, i64 token, const SideParams& side,
               const contract::RowParams& rows) {
  if (rows.data == nullptr) return;
  alignas(64) float row[kMaxRow];
  const i64 page = params.slots[token] / params.page_size;
  const i64 entry = params.slots[token] % params.page_size;
  for (i64 head = 0; head < params.kv_heads; ++head) {
    ReadRow(side, page, entry, head, row);
    StoreRow(row, static_cast<Format>(rows.format), side.head_dim,
             rows.data + token * rows.token_stride + head * rows.head_stride);
  }
}

[[gnu::noinline]] void ReadTokens(const contract::DequantizeParams& params, i64 begin, i64 end) {
  for (i64 token = begin; token < end; ++token) {
    ReadToken(params, token, params.k, params.k_rows);
    ReadToken(params, token, params.v, params.v_rows);
  }
}

}  // namespace

void Dequantize(const contract::DequantizeParams& params, WorkerPool& pool) {
  KVILT_CHECK(params.k.head_dim <= kMaxRow && params.v.head_dim <= kMaxRow);
  const i64 token_elements = params.kv_heads * (params.k.head_dim + params.v.head_dim);
  const i64 step = std::max<i64>(1, kElementsPerTask / std::max<i64>(1, token_elements));
  pool.ParallelFor(contract::CeilDiv(params.tokens, step), [&](int, std::int64_t task) {
    const ScopedFloatMode mode;
    ReadTokens(params, task * step, std::min(params.tokens, (task + 1) * step));
  });
}

}  // namespace kvilt::cpu
