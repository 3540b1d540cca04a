// The structs of kvilt_c.h as the C++ types they stand for.
#pragma once

#include "kvilt/attention.h"
#include "kvilt/kvilt_c.h"

namespace kvilt::api {

// Each: kInvalidArgument names the field whose value no enum has, a null where an array is
// announced, or a `size` that this library does not understand. They may throw std::bad_alloc.
Status FromC(const kvilt_tensor& from, const char* field, TensorView& to);
Status FromC(const kvilt_segment* from, const char* field, Segment& to);
Status FromC(const kvilt_attention_request* from, AttentionRequest& to);
Status FromC(const kvilt_device_spec* from, DeviceSpec& to);
Status FromC(const kvilt_plan_options* from, PlanOptions& to);
Status FromC(const kvilt_attention_state* from, const char* field, AttentionState& to);
Status FromC(const kvilt_append_request* from, AppendRequest& to);

// Writes as many bytes as to->size says.
Status ToC(const DeviceSpec& from, kvilt_device_spec* to);
Status ToC(const Plan& from, kvilt_plan_info* to);

// Element i of an array of structs that are as large as their first one says.
template <class T>
const T* ElementOf(const T* first, std::int64_t i) {
  const auto* bytes = reinterpret_cast<const char*>(first);
  return reinterpret_cast<const T*>(bytes + static_cast<std::size_t>(i) * first->size);
}

}  // namespace kvilt::api
