// The tensors of a request with their names, in one fixed order.
#pragma once

#include <fmt/format.h>

#include <string>

#include "kvilt/request.h"
#include "kvilt/status.h"
#include "src/core/check.h"
#include "src/plan/tensor_check.h"

namespace kvilt::plan {

// Calls visit(FieldPath, const TensorView&) -> Status for each tensor that is given; stops at the
// first error and returns it.
template <class Visit>
Status ForEachTensor(const AttentionRequest& request, Visit&& visit) {
  const auto given = [&visit](std::string_view prefix, std::string_view name,
                              const TensorView& tensor) {
    return tensor.defined() ? visit(FieldPath{prefix, name}, tensor) : Status();
  };
  KVILT_RETURN_IF_ERROR(given("", "q", request.q));
  KVILT_RETURN_IF_ERROR(given("", "q_scales", request.q_scales));
  KVILT_RETURN_IF_ERROR(given("", "out", request.out));
  KVILT_RETURN_IF_ERROR(given("", "lse", request.lse));
  KVILT_RETURN_IF_ERROR(given("", "mask_bits", request.mask_bits));
  if (request.alibi) KVILT_RETURN_IF_ERROR(given("", "alibi.slopes", request.alibi->slopes));
  KVILT_RETURN_IF_ERROR(given("", "sink", request.sink));
  for (std::size_t i = 0; i < request.segments.size(); ++i) {
    const Segment& segment = request.segments[i];
    const std::string prefix = fmt::format("segments[{}]", i);
    KVILT_RETURN_IF_ERROR(given(prefix, "k.data", segment.k().data));
    KVILT_RETURN_IF_ERROR(given(prefix, "k.scales", segment.k().scales));
    KVILT_RETURN_IF_ERROR(given(prefix, "v.data", segment.v().data));
    KVILT_RETURN_IF_ERROR(given(prefix, "v.scales", segment.v().scales));
  }
  return {};
}

}  // namespace kvilt::plan
