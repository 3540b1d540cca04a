// The options of a request: numbers, masks, positions, biases, RoPE, the sink.
#include <fmt/format.h>

#include <cmath>

#include "src/core/check.h"
#include "src/plan/validate.h"

namespace kvilt::plan {
namespace {

// Of q_scale, a decode multiplier like the caches' globals without their guess at reciprocals, and
// of the soft cap.
constexpr float kLeastScale = 0x1p-100f;
constexpr float kMostScale = 0x1p100f;

Status CheckWindow(std::int64_t value, std::string_view name) {
  if (value >= -1) return {};
  return Status::Invalid(std::string(name), fmt::format("{}, expected >= 0, or -1 = off", value));
}

bool HasMaskBits(const AttentionRequest& request) {
  return request.mask == MaskMode::kCustom || request.mask == MaskMode::kTree;
}

std::string_view MaskName(MaskMode mask) {
  switch (mask) {
    case MaskMode::kUnset:
      return "kUnset";
    case MaskMode::kNone:
      return "kNone";
    case MaskMode::kCausal:
      return "kCausal";
    case MaskMode::kCustom:
      return "kCustom";
    case MaskMode::kTree:
      return "kTree";
  }
  return "unknown";
}

// Bytes that the mask of one request takes; an error when the bit count overflows.
Status MaskBytesOf(const AttentionRequest& request, std::int64_t r, std::int64_t q_len,
                   std::int64_t kv_len, std::int64_t& bytes) {
  const std::int64_t columns = request.mask == MaskMode::kCustom ? kv_len : q_len;
  if (request.mask == MaskMode::kTree && q_len > kv_len) {
    return Status::Invalid("mask", fmt::format("kTree with q_len {} > kv_len {} (request {}), "
                                               "expected q_len <= kv_len",
                                               q_len, kv_len, r));
  }
  std::int64_t bits = 0;
  if (!Multiply(q_len, columns, bits)) {
    return Status::Invalid(
        "mask_bits", fmt::format("{} x {} bits of request {} overflow 64 bits", q_len, columns, r));
  }
  bytes = contract::MaskBytes(static_cast<int>(request.mask), q_len, kv_len);
  return {};
}

Status CheckMaskIndptr(const AttentionRequest& request, DeviceKind device,
                       RequestGeometry& geometry) {
  const IndexArray& indptr = request.mask_indptr;
  KVILT_RETURN_IF_ERROR(
      CheckIndexArray(indptr, geometry.batch + 1, true, device, {"", "mask_indptr"}));
  if (indptr[0] < 0) {
    return Status::Invalid("mask_indptr[0]", fmt::format("{}, expected >= 0", indptr[0]));
  }
  for (std::int64_t r = 0; r < geometry.batch; ++r) {
    std::int64_t bytes = 0;
    KVILT_RETURN_IF_ERROR(MaskBytesOf(request, r, geometry.q_len(r), geometry.kv_len(r), bytes));
    const std::int64_t begin = indptr[r];
    const std::int64_t end = indptr[r + 1];
    if (end < begin || end - begin != bytes) {
      return Status::Invalid(fmt::format("mask_indptr[{}]", r + 1),
                             fmt::format("{} after {}, expected {}: request {} has {} mask bytes",
                                         end, begin, begin + bytes, r, bytes));
    }
    if (end > request.mask_bits.shape[0]) {
      return Status::Invalid("mask_bits.shape[0]",
                             fmt::format("{}, expected >= {}, the end of request {} in mask_indptr",
                                         request.mask_bits.shape[0], end, r));
    }
    geometry.mask_begin[static_cast<std::size_t>(r)] = begin;
  }
  return {};
}

Status CheckPackedMask(const AttentionRequest& request, RequestGeometry& geometry) {
  std::int64_t total = 0;
  for (std::int64_t r = 0; r < geometry.batch; ++r) {
    std::int64_t bytes = 0;
    KVILT_RETURN_IF_ERROR(MaskBytesOf(request, r, geometry.q_len(r), geometry.kv_len(r), bytes));
    geometry.mask_begin[static_cast<std::size_t>(r)] = total;
    if (!Add(total, bytes, total)) {
      return Status::Invalid("mask_bits", "the bytes of all requests overflow 64 bits");
    }
  }
  if (request.mask_bits.shape[0] == total) return {};
  return Status::Invalid("mask_bits.shape[0]",
                         fmt::format("{} bytes, expected {}: each request's bits begin at a byte",
                                     request.mask_bits.shape[0], total));
}

Status CheckPositions(const AttentionRequest& request, DeviceKind device,
                      const RequestGeometry& geometry) {
  const IndexArray& positions = request.q_positions;
  if (!positions.defined()) return {};
  const bool window = request.window_left >= 0 || request.window_right >= 0;
  if (!window && !request.rope) {
    return Status::Invalid("q_positions",
                           "given without a window or rope, expected none: nothing "
                           "would use them");
  }
  KVILT_RETURN_IF_ERROR(
      CheckIndexArray(positions, request.q.shape[0], true, device, {"", "q_positions"}));
  return CheckPositionValues(positions, geometry.q_begin.back(), "q_positions");
}

Status CheckPerHead(const TensorView& tensor, DeviceKind device, int q_heads, FieldPath path) {
  if (tensor.defined()) KVILT_RETURN_IF_ERROR(CheckDType(tensor, {DType::kF32}, path));
  return CheckTensor(tensor, {1, {q_heads}, {"q_heads"}, false}, device, path);
}

Status CheckBias(const AttentionRequest& request, DeviceKind device, int q_heads) {
  if (request.alibi) {
    KVILT_RETURN_IF_ERROR(
        CheckPerHead(request.alibi->slopes, device, q_heads, {"", "alibi.slopes"}));
    if (request.alibi->origin > AlibiOrigin::kRowIndex) {
      return Status::Invalid("alibi.origin", fmt::format("{}, expected kBottomRight or kRowIndex",
                                                         static_cast<int>(request.alibi->origin)));
    }
  }
  if (request.bias_before_cap && !request.alibi) {
    return Status::Invalid("bias_before_cap",
                           "true without alibi, expected false: there is no "
                           "bias");
  }
  if (request.bias_before_cap && request.logits_soft_cap == 0.0f) {
    return Status::Invalid("bias_before_cap",
                           "true without logits_soft_cap, expected false: there "
                           "is no cap");
  }
  return {};
}

Status CheckPositive(double value, std::string_view field) {
  if (std::isfinite(value) && value > 0) return {};
  return Status::Invalid(std::string(field), fmt::format("{}, expected finite and > 0", value));
}

Status CheckRope(const Rope& rope, DeviceKind device, const RequestGeometry& geometry) {
  if (rope.pairing > RopePairing::kInterleaved) {
    return Status::Invalid("rope.pairing", fmt::format("{}, expected kHalf or kInterleaved",
                                                       static_cast<int>(rope.pairing)));
  }
  if (rope.frequency > RopeFrequency::kProportional) {
    return Status::Invalid("rope.frequency", fmt::format("{}, expected kRotary or kProportional",
                                                         static_cast<int>(rope.frequency)));
  }
  if (rope.rotary_dim < 0 || rope.rotary_dim % 2 != 0 || rope.rotary_dim > geometry.head_dim_qk) {
    return Status::Invalid("rope.rotary_dim", fmt::format("{}, expected even and in 0..{} "
                                                          "(head_dim_qk; 0 = all of it)",
                                                          rope.rotary_dim, geometry.head_dim_qk));
  }
  KVILT_RETURN_IF_ERROR(CheckPositive(rope.theta, "rope.theta"));
  KVILT_RETURN_IF_ERROR(CheckPositive(rope.scale, "rope.scale"));
  if (rope.llama31) {
    KVILT_RETURN_IF_ERROR(
        CheckPositive(rope.llama31->low_freq_factor, "rope.llama31.low_freq_factor"));
    KVILT_RETURN_IF_ERROR(
        CheckPositive(rope.llama31->high_freq_factor, "rope.llama31.high_freq_factor"));
    KVILT_RETURN_IF_ERROR(
        CheckPositive(rope.llama31->original_length, "rope.llama31.original_length"));
    if (rope.llama31->high_freq_factor <= rope.llama31->low_freq_factor) {
      return Status::Invalid(
          "rope.llama31.high_freq_factor",
          fmt::format("{}, expected > low_freq_factor {}", rope.llama31->high_freq_factor,
                      rope.llama31->low_freq_factor));
    }
  }
  if (!rope.key_positions.defined()) return {};
  std::int64_t keys = 0;
  for (std::int64_t r = 0; r < geometry.batch; ++r) {
    if (!Add(keys, geometry.kv_len(r), keys)) {
      return Status::Invalid("rope.key_positions", "the keys of all requests overflow 64 bits");
    }
  }
  KVILT_RETURN_IF_ERROR(
      CheckIndexArray(rope.key_positions, keys, false, device, {"", "rope.key_positions"}));
  if (!rope.key_positions.on_host()) return {};
  return CheckPositionValues(rope.key_positions, keys, "rope.key_positions");
}

}  // namespace

Status CheckPositionValues(const IndexArray& positions, std::int64_t count, std::string_view name) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (positions[i] >= -kMaxLength && positions[i] <= kMaxLength) continue;
    return Status::Invalid(fmt::format("{}[{}]", name, i),
                           fmt::format("{}, expected within +-{}", positions[i], kMaxLength));
  }
  return {};
}

Status CheckNumbers(const AttentionRequest& request) {
  if (request.mask == MaskMode::kUnset || request.mask > MaskMode::kTree) {
    return Status::Invalid("mask", fmt::format("{}, expected kNone, kCausal, kCustom or kTree: "
                                               "there is no default",
                                               MaskName(request.mask)));
  }
  if (request.lse_base > LseBase::kTwo) {
    return Status::Invalid("lse_base", fmt::format("{}, expected kNatural or kTwo",
                                                   static_cast<int>(request.lse_base)));
  }
  if (request.sm_scale && !std::isfinite(*request.sm_scale)) {
    return Status::Invalid("sm_scale", fmt::format("{}, expected finite", *request.sm_scale));
  }
  if (!(request.q_scale >= kLeastScale && request.q_scale <= kMostScale)) {
    return Status::Invalid(
        "q_scale",
        fmt::format("{}, expected a finite multiplier in [2^-100, 2^100]", request.q_scale));
  }
  if (request.sm_scale && !std::isfinite(*request.sm_scale * request.q_scale)) {
    return Status::Invalid("sm_scale", fmt::format("{} times q_scale {} overflows f32",
                                                   *request.sm_scale, request.q_scale));
  }
  // Kernels multiply by the inverse, so that must be a float too.
  if (request.logits_soft_cap != 0.0f &&
      !(request.logits_soft_cap >= kLeastScale && request.logits_soft_cap <= kMostScale)) {
    return Status::Invalid(
        "logits_soft_cap",
        fmt::format("{}, expected 0 (off) or a cap in [2^-100, 2^100]", request.logits_soft_cap));
  }
  KVILT_RETURN_IF_ERROR(CheckWindow(request.window_left, "window_left"));
  return CheckWindow(request.window_right, "window_right");
}

Status CheckMask(const AttentionRequest& request, DeviceKind device, RequestGeometry& geometry) {
  geometry.visibility.mask = static_cast<int>(request.mask);
  geometry.visibility.window_left = request.window_left;
  geometry.visibility.window_right = request.window_right;
  geometry.mask_begin.assign(static_cast<std::size_t>(geometry.batch), 0);
  if (!HasMaskBits(request)) {
    if (request.mask_bits.defined() || request.mask_bits.data != nullptr) {
      return Status::Invalid(
          "mask_bits", fmt::format("given with mask {}, expected none", MaskName(request.mask)));
    }
    if (request.mask_indptr.defined()) {
      return Status::Invalid(
          "mask_indptr", fmt::format("given with mask {}, expected none", MaskName(request.mask)));
    }
    return {};
  }
  if (!request.mask_bits.defined()) {
    return Status::Invalid("mask_bits", fmt::format("not given, expected u8 bits for mask {}",
                                                    MaskName(request.mask)));
  }
  KVILT_RETURN_IF_ERROR(CheckDType(request.mask_bits, {DType::kU8}, {"", "mask_bits"}));
  KVILT_RETURN_IF_ERROR(CheckTensor(request.mask_bits, {1, {kAnyExtent}, {"bytes"}, true}, device,
                                    {"", "mask_bits"}));
  if (request.mask_indptr.defined()) return CheckMaskIndptr(request, device, geometry);
  return CheckPackedMask(request, geometry);
}

Status CheckExtras(const AttentionRequest& request, DeviceKind device,
                   const RequestGeometry& geometry) {
  KVILT_RETURN_IF_ERROR(CheckPositions(request, device, geometry));
  KVILT_RETURN_IF_ERROR(CheckBias(request, device, geometry.q_heads));
  if (request.sink.defined() || request.sink.data != nullptr) {
    KVILT_RETURN_IF_ERROR(CheckPerHead(request.sink, device, geometry.q_heads, {"", "sink"}));
  }
  if (request.rope) KVILT_RETURN_IF_ERROR(CheckRope(*request.rope, device, geometry));
  return {};
}

}  // namespace kvilt::plan
