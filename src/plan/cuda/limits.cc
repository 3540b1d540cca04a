#include "src/plan/cuda/limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "src/contract/attention_args.h"
#include "src/core/check.h"

namespace kvilt::plan::cuda {
namespace {

constexpr std::int64_t kMostCount = std::numeric_limits<int>::max();
constexpr float kMostScaleRatio = 0x1p64f;
// Offsets from an item's first key have 32 bits.
constexpr std::int64_t kMostKeys = std::int64_t{1} << 30;
constexpr std::int64_t kMostStrideBytes = std::numeric_limits<std::uint32_t>::max();

Status RefuseF32(std::string field) {
  return Status::Unsupported(
      std::move(field),
      "f32, expected a 16-bit, fp8 or nvfp4 dtype: MMAs of a GPU have no f32 "
      "operands (the CPU does f32)");
}

// Kernels keep strides in 32 bits; their products with indices have 64.
Status CheckStrides(const TensorView& tensor, std::size_t index, const char* name) {
  for (int axis = 0; axis < tensor.rank; ++axis) {
    const std::int64_t bytes = tensor.stride[axis] * StorageBytes(tensor.dtype);
    if (bytes <= kMostStrideBytes || tensor.shape[axis] <= 1) continue;
    return Status::Unsupported(fmt::format("segments[{}].{}.stride[{}]", index, name, axis),
                               fmt::format("{} bytes, expected less than 4 GiB on a GPU", bytes));
  }
  return {};
}

// Planning again asks too, so texts are made of refusals only: it allocates nothing.
Status CheckSegment(const Segment& segment, std::size_t index) {
  const TensorView& k = segment.k().data;
  if (k.dtype == DType::kF32) return RefuseF32(fmt::format("segments[{}].k.data.dtype", index));
  if (segment.v().data.dtype == DType::kF32) {
    return RefuseF32(fmt::format("segments[{}].v.data.dtype", index));
  }
  // Kernels keep where a key lies in 32-bit numbers.
  for (int axis = 0; axis < k.rank - 1; ++axis) {
    if (k.shape[axis] <= kMostCount) continue;
    return Status::Unsupported(
        fmt::format("segments[{}].k.data.shape[{}]", index, axis),
        fmt::format("{}, expected at most 2^31 - 1 on a GPU", k.shape[axis]));
  }
  KVILT_RETURN_IF_ERROR(CheckStrides(k, index, "k.data"));
  KVILT_RETURN_IF_ERROR(CheckStrides(segment.k().scales, index, "k.scales"));
  KVILT_RETURN_IF_ERROR(CheckStrides(segment.v().data, index, "v.data"));
  return CheckStrides(segment.v().scales, index, "v.scales");
}

// The largest and the least multiplier, as far as the host has them.
void Widen(const DecodeScale& scale, float& least, float& most) {
  if (scale.array == nullptr) {
    least = std::min(least, scale.value);
    most = std::max(most, scale.value);
  } else if (scale.device.kind == DeviceKind::kCpu) {
    for (std::int64_t i = 0; i < scale.array_size; ++i) {
      least = std::min(least, scale.array[i]);
      most = std::max(most, scale.array[i]);
    }
  }
}

// An item that walks several segments keeps its sums in units of the last one's multiplier, in f32.
Status CheckValueScales(const AttentionRequest& request) {
  if (request.segments.size() < 2) return {};
  float least = std::numeric_limits<float>::max();
  float most = 0;
  for (const Segment& segment : request.segments) Widen(segment.v().global, least, most);
  if (most <= least * kMostScaleRatio) return {};
  return Status::Unsupported(
      "segments", fmt::format("v.global from {} to {}, expected within 2^64 of each other on a GPU",
                              least, most));
}

}  // namespace

Status CheckLimits(const AttentionRequest& request, const RequestGeometry& geometry) {
  if (request.q.dtype == DType::kF32) return RefuseF32("q.dtype");
  if (geometry.q_begin.back() > kMostCount) {
    return Status::Unsupported("q_indptr",
                               fmt::format("{} query rows, expected at most 2^31 - 1 on "
                                           "a GPU",
                                           geometry.q_begin.back()));
  }
  for (std::int64_t r = 0; r < geometry.batch; ++r) {
    if (geometry.kv_len(r) <= kMostKeys) continue;
    return Status::Unsupported(
        "segments", fmt::format("request {} has {} keys, expected at most 2^30 on a GPU", r,
                                geometry.kv_len(r)));
  }
  if (request.segments.size() > static_cast<std::size_t>(contract::kMaxSegments)) {
    return Status::Unsupported(
        "segments", fmt::format("{}, expected at most {} on a GPU", request.segments.size(),
                                contract::kMaxSegments));
  }
  for (std::size_t s = 0; s < request.segments.size(); ++s) {
    KVILT_RETURN_IF_ERROR(CheckSegment(request.segments[s], s));
  }
  return CheckValueScales(request);
}

}  // namespace kvilt::plan::cuda
