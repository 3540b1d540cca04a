#include "src/plan/cuda/limits.h"

#include <fmt/format.h>

#include <limits>

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

Status CheckSegment(const Segment& segment, std::size_t index) {
  const auto at = [&](std::string_view name) {
    return fmt::format("segments[{}].{}", index, name);
  };
  KVILT_RETURN_IF_ERROR(RefuseF32(at("k.data.dtype"), segment.k().data));
  KVILT_RETURN_IF_ERROR(RefuseF32(at("v.data.dtype"), segment.v().data));
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
