#include "src/plan/cuda/limits.h"

#include <fmt/format.h>

#include <cstdint>
#include <limits>

#include "src/contract/attention_args.h"

namespace kvilt::plan::cuda {
namespace {

constexpr std::int64_t kMostCount = std::numeric_limits<int>::max();

}  // namespace

// Planning again asks too, so texts are made of refusals only: it allocates nothing.
Status CheckLimits(const AttentionRequest& request) {
  if (request.segments.size() > static_cast<std::size_t>(contract::kMaxSegments)) {
    return Status::Unsupported(
        "segments", fmt::format("{}, expected at most {} on a GPU", request.segments.size(),
                                contract::kMaxSegments));
  }
  for (std::size_t s = 0; s < request.segments.size(); ++s) {
    // Kernels keep where a key lies in 32-bit numbers.
    const TensorView& k = request.segments[s].k().data;
    for (int axis = 0; axis < k.rank - 1; ++axis) {
      if (k.shape[axis] <= kMostCount) continue;
      return Status::Unsupported(
          fmt::format("segments[{}].k.data.shape[{}]", s, axis),
          fmt::format("{}, expected at most 2^31 - 1 on a GPU", k.shape[axis]));
    }
  }
  return {};
}

}  // namespace kvilt::plan::cuda
