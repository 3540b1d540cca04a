#include "src/cpu/append.h"

#include <algorithm>
#include <cstring>
#include <mutex>

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

// One loop index converts about this many elements: long enough to hide the hand-out, short enough
// to balance.
constexpr i64 kElementsPerTask = 16384;
constexpr int kMaxRow = 1024;

// Divides by the global in place and counts what the formats without blocks count.
void ToStored(float* row, int count, float global, HealthCounters& health) {
  int nan = 0;
  int infinite = 0;
  for (int i = 0; i < count; ++i) {
    nan += contract::IsNan(row[i]);
    infinite += contract::IsInfinite(row[i]);
  }
  health.nan += nan;
  health.infinite += infinite;
  if (global == 1.0f) {
    for (int i = 0; i < count; ++i) row[i] = contract::StoredValue(row[i], 1.0f);
  } else {
    for (int i = 0; i < count; ++i) row[i] = contract::StoredValue(row[i], global);
  }
}

void StoreFp8(const float* row, int count, Format format, u8* target, HealthCounters& health) {
  int clipped = 0;
  if (format == Format::kE4M3) {
    for (int i = 0; i < count; ++i) target[i] = contract::EncodeE4M3(row[i]);
    for (int i = 0; i < count; ++i) clipped += contract::ClipsE4M3(row[i]);
  } else {
    for (int i = 0; i < count; ++i) target[i] = contract::EncodeE5M2(row[i]);
    for (int i = 0; i < count; ++i) clipped += contract::ClipsE5M2(row[i]);
  }
  health.saturated += clipped;
}

struct CacheRow {
  i64 page = 0;
  i64 entry = 0;
  i64 head = 0;
};

void StoreNvfp4(const float* row, const SideParams& side, const CacheRow& at, bool four_over_six,
                u8* data, u8* scales, HealthCounters& health) {
  const float global = contract::GlobalOf(side, at.head);
  for (int block = 0; block < side.head_dim / contract::kNvfp4Block; ++block) {
    const contract::Nvfp4Block written =
        contract::EncodeNvfp4Block(row + block * contract::kNvfp4Block, global, four_over_six);
    std::memcpy(data + block * contract::kNvfp4BlockBytes, written.codes, sizeof(written.codes));
    scales[contract::ScaleOffset(side, at.page, at.entry, at.head, block)] = written.scale;
    health.nan += written.nan;
    health.infinite += written.infinite;
    health.saturated += written.saturated;
    health.flushed_blocks += written.flushed;
  }
}

// `row` is scratch: it holds the source row and is overwritten.
void WriteRow(float* row, const SideParams& side, const CacheRow& at, bool four_over_six,
              HealthCounters& health) {
  u8* data = const_cast<u8*>(side.data) + contract::DataOffset(side, at.page, at.entry, at.head);
  const Format format = static_cast<Format>(side.format);
  if (format == Format::kNVFP4) {
    StoreNvfp4(row, side, at, four_over_six, data, const_cast<u8*>(side.scales), health);
    return;
  }
  ToStored(row, side.head_dim, contract::GlobalOf(side, at.head), health);
  if (format == Format::kE4M3 || format == Format::kE5M2) {
    StoreFp8(row, side.head_dim, format, data, health);
  } else {
    StoreRow(row, format, side.head_dim, data);
  }
}

void WriteToken(const contract::AppendParams& params, i64 token, const contract::RowParams& rows,
                const SideParams& side, HealthCounters& health) {
  const i64 slot = params.slots[token];
  if (slot < 0) {
    ++health.skipped;
    return;
  }
  alignas(64) float row[kMaxRow];
  CacheRow at{slot / params.page_size, slot % params.page_size, 0};
  for (; at.head < params.kv_heads; ++at.head) {
    LoadRow(rows.data + token * rows.token_stride + at.head * rows.head_stride,
            static_cast<Format>(rows.format), side.head_dim, row);
    WriteRow(row, side, at, params.four_over_six != 0, health);
  }
}

[[gnu::noinline]] AppendHealth WriteTokens(const contract::AppendParams& params, i64 begin,
                                           i64 end) {
  AppendHealth health;
  for (i64 token = begin; token < end; ++token) {
    WriteToken(params, token, params.k_rows, params.k, health.k);
    WriteToken(params, token, params.v_rows, params.v, health.v);
  }
  return health;
}

}  // namespace

void AddHealth(const HealthCounters& from, HealthCounters& to) {
  to.nan += from.nan;
  to.infinite += from.infinite;
  to.saturated += from.saturated;
  to.flushed_blocks += from.flushed_blocks;
  to.skipped += from.skipped;
}

AppendHealth Append(const contract::AppendParams& params, WorkerPool& pool) {
  KVILT_CHECK(params.k.head_dim <= kMaxRow && params.v.head_dim <= kMaxRow);
  const i64 token_elements = params.kv_heads * (params.k.head_dim + params.v.head_dim);
  const i64 step = std::max<i64>(1, kElementsPerTask / std::max<i64>(1, token_elements));
  std::mutex mutex;
  AppendHealth total;
  pool.ParallelFor(contract::CeilDiv(params.tokens, step), [&](int, std::int64_t task) {
    const ScopedFloatMode mode;
    const i64 begin = task * step;
    const AppendHealth part = WriteTokens(params, begin, std::min(params.tokens, begin + step));
    const std::lock_guard lock(mutex);
    AddHealth(part.k, total.k);
    AddHealth(part.v, total.v);
  });
  return total;
}

}  // namespace kvilt::cpu
