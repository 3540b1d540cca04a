// AttentionRequest: what the user asks for, for a whole batch. docs/design.md has the formulas.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kvilt/kv_cache.h"
#include "kvilt/tensor.h"

namespace kvilt {

// Which keys a query row sees, before the window. There is no default: kUnset is refused.
// With delta = kv_len - q_len, row i of a request and key j:
enum class MaskMode : std::uint8_t {
  kUnset = 0,
  kNone = 1,    // Every key.
  kCausal = 2,  // j <= i + delta.
  kCustom = 3,  // Bits [q_len, kv_len] of `mask_bits`.
  kTree = 4,    // Bits [q_len, q_len] over the last q_len keys; the prefix before is visible.
};

enum class LseBase : std::uint8_t { kNatural = 0, kTwo = 1 };

// ALiBi: slope[h] * (j - (i + delta)) or slope[h] * (j - i).
enum class AlibiOrigin : std::uint8_t { kBottomRight = 0, kRowIndex = 1 };

// Which elements rotate together: (i, i + r/2) or (2i, 2i + 1). r is rotary_dim with kRotary, and
// head_dim with kProportional, whose pairs span the whole head (as in Gemma 4).
enum class RopePairing : std::uint8_t { kHalf = 0, kInterleaved = 1 };
// theta^(-2i / rotary_dim), or theta^(-2i / head_dim) which is zero from pair rotary_dim/2 on.
enum class RopeFrequency : std::uint8_t { kRotary = 0, kProportional = 1 };

// Not nested in Rope: clang would then deny std::optional its default constructor.
struct RopeLlama31 {
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  double original_length = 8192.0;
};

// RoPE inside the kernel, on Q and K both (the cache holds K un-rotated).
// angle = position * frequency / scale; with `llama31` the division is smoothed over wavelengths.
struct Rope {
  RopePairing pairing = RopePairing::kHalf;
  RopeFrequency frequency = RopeFrequency::kRotary;
  double theta = 10000.0;
  int rotary_dim = 0;  // Even, <= head_dim_qk; 0 = head_dim_qk. Elements beyond pass unchanged.
  double scale = 1.0;  // > 0
  using Llama31 = RopeLlama31;
  std::optional<Llama31> llama31;
  // Host or device array [sum of kv_len], requests one after another, within +-2^40; undefined =
  // key j is at j.
  IndexArray key_positions;
};

struct Alibi {
  TensorView slopes;  // f32 [q_heads]
  AlibiOrigin origin = AlibiOrigin::kBottomRight;
};

// One batch of requests. Rows of request r are [q_indptr[r], q_indptr[r+1]) of `q`, `out`, `lse`.
// Everything here is borrowed; planning reads host arrays and never touches q, caches or outputs.
struct AttentionRequest {
  // [total_q, q_heads, RowElements(dtype, head_dim_qk)], innermost stride 1.
  // kF32 (CPU), kBF16, kF16, kE4M3, kNVFP4; its decode multiplier is `q_scale`.
  TensorView q;
  TensorView q_scales;  // kNVFP4 only: kE4M3 [total_q, q_heads, head_dim_qk / 16].
  IndexArray q_indptr;  // Host, [batch + 1], starts at 0, never decreases, ends at <= total_q.

  std::vector<Segment> segments;  // At least one.

  TensorView out;  // kF32, kBF16 or kF16, [total_q, q_heads, head_dim_vo], innermost stride 1.
  TensorView lse;  // Optional: kF32 [total_q, q_heads].
  LseBase lse_base = LseBase::kNatural;

  std::optional<float> sm_scale;  // Default 1 / sqrt(head_dim_qk).
  float q_scale = 1.0f;           // Multiplies q . k too: the decode multiplier of a quantized Q.
  float logits_soft_cap = 0.0f;   // c in [2^-100, 2^100]: x = c * tanh(x / c). 0 = off.

  MaskMode mask = MaskMode::kUnset;
  // kCustom, kTree: kU8 [bytes]. Bits row-major, little-endian within a byte, each request at a
  // byte boundary. `mask_indptr` gives each request's first byte; undefined = packed in order.
  TensorView mask_bits;
  IndexArray mask_indptr;  // Host, [batch + 1].
  // Inclusive, relative to the row's position p (i + delta, or q_positions): j in
  // [p - window_left, p + window_right]. -1 = off. ANDs with every mask mode.
  std::int64_t window_left = -1;
  std::int64_t window_right = -1;
  // Optional, host, [total_q]: positions for the window and for RoPE, within +-2^40.
  IndexArray q_positions;

  std::optional<Alibi> alibi;
  bool bias_before_cap = false;  // ALiBi before the soft cap instead of after it.
  std::optional<Rope> rope;
  // Optional: f32 [q_heads], a logit in natural units, once in each denominator, however far from
  // the scores it is. -inf is no sink, +inf takes all weight (out = 0, lse = +inf), NaN gives NaN.
  TensorView sink;

  // GPU: the caller promises that KV written by the previous kernel on the stream is complete, so
  // loads may start before the dependency wait. Accepted and without effect on the CPU, where
  // calls are ordered.
  bool kv_settled = false;

  std::int64_t batch() const { return q_indptr.size > 0 ? q_indptr.size - 1 : 0; }
};

}  // namespace kvilt
