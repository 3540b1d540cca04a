// What a SIMD body offers to the walk over work items (item_walk.h). A body knows vectors and
// formats; it knows nothing of pages, requests, masks, splits or threads.
//
//   query row     one query row of one query head, prepared once per item
//   key tile      64 keys of one KV head, decoded; lane t is key `tile base + t`
//   value tile    the same of V
//   output row    unnormalised sums, f32, in an order of the body's choice until `finish_output`
//
// Every function is thread-safe and allocates nothing. Sizes are multiples of 64 bytes; buffers are
// aligned to 64.
#pragma once

#include "src/contract/attention_params.h"

namespace kvilt::cpu {

using contract::i64;
using contract::u64;
using contract::u8;

inline constexpr int kTileKeys = 64;
inline constexpr int kMaxHeadDim = 512;

// What holds for a whole launch.
struct BodyConfig {
  int head_dim_qk = 0;
  int head_dim_vo = 0;
  bool q_is_bf16_exact = false;  // Every prepared query element is a bf16 number.
  bool near_exact = false;       // Accuracy::kNearExact
};

// Rows to decode: `count` of them (kTileKeys in a tile), row t at rows[t] + row_offset. The same
// address may appear twice; a lane that must read as zero points to ZeroRow() (offsets are then 0).
struct RowSource {
  const u8* const* rows = nullptr;
  const u8* const* scales = nullptr;  // kNVFP4: linear e4m3 scales of each row.
  i64 row_offset = 0;
  i64 scale_offset = 0;
  contract::Format format = contract::Format::kF32;
  int head_dim = 0;
  // Rows to bring into the second-level cache meanwhile, as many; null = none.
  const u8* const* ahead = nullptr;
  const u8* const* ahead_scales = nullptr;

  const u8* row(i64 t) const { return rows[t] + row_offset; }
  const u8* scale_row(i64 t) const { return scales[t] + scale_offset; }
};

// Cosines and sines, [row][rotary_dim / 2], rows `stride` floats apart.
struct Rotation {
  const float* cosines = nullptr;
  const float* sines = nullptr;
  i64 stride = 0;
  int rotary_dim = 0;
  bool interleaved = false;
};

// From raw scores to log2-domain logits, for one query head. Natural units:
//   x = raw * scale; cap; x += slope * (key - origin)   (bias before the cap on request)
struct LogitOptions {
  bool plain = true;  // No cap, no bias: x2 = raw * scale_log2.
  float scale_log2 = 0.0f;
  float scale = 0.0f;
  float soft_cap = 0.0f;
  bool bias_before_cap = false;
};

// One query row of one query head against one tile.
struct RowRef {
  const void* query = nullptr;
  float* output = nullptr;
  float* state = nullptr;       // [2]: reference m, sum l.
  u64 visible = 0;              // Bit t: lane t is visible. Not zero.
  float slope = 0.0f;           // ALiBi
  float first_distance = 0.0f;  // key of lane 0 minus the bias's anchor (BiasAnchor)
};

struct TileJob {
  const BodyConfig* config = nullptr;
  const void* key_tile = nullptr;
  const void* value_tile = nullptr;
  contract::Format key_format = contract::Format::kF32;  // That the key tile was decoded from.
  const RowRef* rows = nullptr;
  int row_count = 0;
  LogitOptions logits;
};

struct AttentionBody {
  i64 (*query_row_bytes)(const BodyConfig& config);
  i64 (*key_tile_bytes)(const BodyConfig& config);
  i64 (*value_tile_bytes)(const BodyConfig& config);
  i64 (*output_row_floats)(const BodyConfig& config);

  // f32 rows from any format, exact; elements from head_dim up to `stride` become zero.
  // REQUIRES: stride >= head_dim, a multiple of 16.
  void (*decode_rows)(const RowSource& source, int count, float* rows, i64 stride);
  // Rotates f32 rows in place.
  void (*rotate_rows)(float* rows, i64 stride, int count, const Rotation& rotation);

  // cos and sin of a + b from those of a and b, [cosines, sines][pairs] each, to f32.
  void (*multiply_angles)(const double* a, const double* b, int pairs, float* cosines,
                          float* sines);

  // `row` as decode_rows writes it, with a stride of RoundUp(head_dim_qk, 16).
  void (*prepare_query)(const BodyConfig& config, const float* row, void* query);
  // `rotation` is null without RoPE; REQUIRES null on the island.
  void (*decode_keys)(const BodyConfig& config, const RowSource& source, const Rotation* rotation,
                      void* key_tile);
  void (*decode_values)(const BodyConfig& config, const RowSource& source, void* value_tile);
  bool (*values_are_finite)(const BodyConfig& config, const void* value_tile);

  // Raw scores of 64 keys to natural logits, in place.
  void (*apply_logit_options)(const LogitOptions& options, const RowRef& row, float* scores);
  // Scores, logits, online softmax, values: updates the states and outputs of the rows. Each row's
  // bits depend on that row, the tile and the options alone, not on the rows beside it, provided
  // that the value tile is finite or all rows see the same lanes.
  void (*attend)(const TileJob& job);
  // To natural order, head_dim_vo floats.
  void (*finish_output)(const BodyConfig& config, const float* output, float* natural);
};

// Zero bytes, as long as the longest row.
const u8* ZeroRow();

}  // namespace kvilt::cpu
