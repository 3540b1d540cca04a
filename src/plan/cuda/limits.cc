#include "src/plan/cuda/limits.h"

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <string_view>

#include "src/contract/attention_args.h"
#include "src/core/check.h"

namespace kvilt::plan::cuda {
namespace {

Status RefuseF32(std::string_view field, const TensorView& tensor) {
  if (tensor.dtype != DType::kF32) return {};
  return Status::Unsupported(
      std::string(field),
      "f32, expected a 16-bit, fp8 or nvfp4 dtype: MMAs of a GPU have no f32 "
      "operands (the CPU does f32)");
}

// Kernels keep where a key lies in 32-bit numbers.
Status CheckCount(std::int64_t count, std::string_view field) {
  if (count <= std::numeric_limits<int>::max()) return {};
  return Status::Unsupported(std::string(field),
                             fmt::format("{}, expected at most 2^31 - 1 on a GPU", count));
}

// Their products with indices do not.
Status CheckStrides(const TensorView& tensor, std::string_view side) {
  for (int axis = 0; axis < tensor.rank; ++axis) {
    const std::int64_t bytes = tensor.stride[axis] * StorageBytes(tensor.dtype);
    // Heads are stepped over once, in 64 bits; which axis they are is not asked here.
    if (bytes <= std::numeric_limits<std::uint32_t>::max() || tensor.shape[axis] <= 1) continue;
    return Status::Unsupported(fmt::format("{}.stride[{}]", side, axis),
                               fmt::format("{} bytes, expected less than 4 GiB on a GPU", bytes));
  }
  return {};
}

Status CheckSegment(const Segment& segment, std::size_t index) {
  const auto at = [&](std::string_view name) {
    return fmt::format("segments[{}].{}", index, name);
  };
  KVILT_RETURN_IF_ERROR(RefuseF32(at("k.data.dtype"), segment.k().data));
  KVILT_RETURN_IF_ERROR(RefuseF32(at("v.data.dtype"), segment.v().data));
  for (const CacheSide* side : {&segment.k(), &segment.v()}) {
    for (const TensorView* tensor : {&side->data, &side->scales}) {
      KVILT_RETURN_IF_ERROR(CheckStrides(*tensor, side == &segment.k() ? at("k") : at("v")));
    }
  }
  for (int axis = 0; axis < segment.k().data.rank - 1; ++axis) {
    KVILT_RETURN_IF_ERROR(
        CheckCount(segment.k().data.shape[axis], at(fmt::format("k.data.shape[{}]", axis))));
  }
  return {};
}

}  // namespace

Status CheckLimits(const AttentionRequest& request) {
  KVILT_RETURN_IF_ERROR(RefuseF32("q.dtype", request.q));
  if (request.segments.size() > static_cast<std::size_t>(contract::kMaxSegments)) {
    return Status::Unsupported(
        "segments", fmt::format("{}, expected at most {} on a GPU", request.segments.size(),
                                contract::kMaxSegments));
  }
  for (std::size_t s = 0; s < request.segments.size(); ++s) {
    KVILT_RETURN_IF_ERROR(CheckSegment(request.segments[s], s));
  }
  return {};
}

}  // namespace kvilt::plan::cuda
