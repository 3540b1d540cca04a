// Operands of one attention launch, flattened. Filled in one place (src/api/bind.cc) from the
// checked public request; read by every backend.
#pragma once

#include "types.h"
#include "visibility.h"

namespace kvilt::contract {

// Values equal kvilt::DType.
enum class Format : i32 {
  kF32 = 0,
  kBF16 = 1,
  kF16 = 2,
  kE4M3 = 3,
  kE5M2 = 4,
  kNVFP4 = 5,
};

// K or V of one segment. Strides in bytes. For a ragged cache the page stride is unused: the
// "token" is the row of the total axis.
struct SideParams {
  const u8* data = nullptr;
  const u8* scales = nullptr;     // e4m3 bytes, kNVFP4 only.
  const float* global = nullptr;  // Null: global_value.
  float global_value = 1.0f;
  i32 global_per_head = 0;  // 1: global[kv_head], else global[0].
  i32 format = 0;           // Format
  i32 head_dim = 0;
  i32 interleaved4 = 0;  // ScaleLayout::kInterleaved4
  i64 page_stride = 0;
  i64 token_stride = 0;
  i64 head_stride = 0;
  i64 scale_page_stride = 0;
  i64 scale_token_stride = 0;
  i64 scale_head_stride = 0;
};

enum class TableKind : i32 { kCsr = 0, kPadded = 1, kRagged = 2 };

struct SegmentParams {
  SideParams k;
  SideParams v;
  i32 table = 0;         // TableKind
  i32 shared = 0;        // 1: every request reads table row 0.
  i32 index_is_i64 = 0;  // Width of `indices`.
  i32 indptr_is_i64 = 0;
  const void* indices = nullptr;  // Page ids.
  const void* indptr = nullptr;   // kCsr: first page of a row; kRagged: first token of a row.
  i64 row_stride = 0;             // kPadded
  i64 page_size = 0;              // kRagged: the total token count, one "page".
  i64 pages = 0;                  // Ids outside [0, pages) are absent.
};

struct RopeParams {
  i32 enabled = 0;
  i32 interleaved = 0;
  i32 rotary_dim = 0;
  i32 key_position_is_i64 = 0;
  const void* key_positions = nullptr;  // Null: key j is at j.
  // f64 [rotary_dim / 2]: radians per position of each pair, every factor included.
  const double* frequencies = nullptr;
};

struct AttentionParams {
  // Query. Strides in bytes.
  const u8* q = nullptr;
  const u8* q_scales = nullptr;
  i32 q_format = 0;
  i32 out_format = 0;
  i64 q_row_stride = 0;
  i64 q_head_stride = 0;
  i64 q_scale_row_stride = 0;
  i64 q_scale_head_stride = 0;
  u8* out = nullptr;
  i64 out_row_stride = 0;
  i64 out_head_stride = 0;
  float* lse = nullptr;  // May be null. Strides in elements.
  i64 lse_row_stride = 0;
  i64 lse_head_stride = 0;
  i32 lse_base_two = 0;

  // x = (q . k) * logit_scale (natural units; K's global is applied per KV head on top).
  // In double, since the parts may leave f32 where their product with the globals does not.
  double logit_scale = 1.0;             // sm_scale * q_scale
  float soft_cap = 0.0f;                // 0 = off
  const float* alibi_slopes = nullptr;  // [q_heads] dense or strided by alibi_stride elements.
  i64 alibi_stride = 1;
  i32 alibi_row_index = 0;  // AlibiOrigin::kRowIndex
  i32 bias_before_cap = 0;
  Visibility visibility;
  const u8* mask_bits = nullptr;
  const void* q_positions = nullptr;  // Null: i + kv_len - q_len.
  i32 q_position_is_i64 = 0;
  const float* sink = nullptr;  // [q_heads], natural units.
  i64 sink_stride = 1;
  RopeParams rope;

  const SegmentParams* segments = nullptr;
  i32 segment_count = 0;
};

constexpr i64 LoadIndex(const void* array, i32 is_i64, i64 i) {
  return is_i64 ? static_cast<const i64*>(array)[i] : static_cast<const i32*>(array)[i];
}

}  // namespace kvilt::contract
