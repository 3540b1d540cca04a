// The C ABI: devices, plans, runs, merge, append, dequantize. c_pool.cc has the page pool.
#include <algorithm>
#include <cstring>
#include <vector>

#include "kvilt/kvilt.h"
#include "kvilt/kvilt_c.h"
#include "src/api/c_convert.h"
#include "src/api/c_guard.h"
#include "src/api/host_memory.h"

struct kvilt_plan {
  kvilt::Plan plan;
};
struct kvilt_prepared {
  kvilt::PreparedPlan prepared;
};

namespace kvilt::api {
namespace {

static_assert(KVILT_INVALID_ARGUMENT == static_cast<int>(StatusCode::kInvalidArgument));
static_assert(KVILT_RUNTIME == static_cast<int>(StatusCode::kRuntime));

thread_local char last_error[2048] = "";

void AddHealth(const HealthCounters& from, kvilt_health* to) {
  if (to == nullptr) return;
  to->nan += from.nan;
  to->infinite += from.infinite;
  to->saturated += from.saturated;
  to->flushed_blocks += from.flushed_blocks;
  to->skipped += from.skipped;
}

}  // namespace

kvilt_status ReportError(StatusCode code, const char* text) noexcept {
  const std::size_t length = std::min(std::strlen(text), sizeof(last_error) - 1);
  std::memmove(last_error, text, length);
  last_error[length] = '\0';
  return static_cast<kvilt_status>(code);
}

}  // namespace kvilt::api

using kvilt::Status;
using kvilt::api::Array;
using kvilt::api::Guard;
using kvilt::api::HandOut;
using kvilt::api::NotNull;

const char* kvilt_last_error(void) { return kvilt::api::last_error; }
const char* kvilt_version(void) { return KVILT_VERSION; }

// ---------------------------------------------------------------- device

kvilt_status kvilt_device_open(const char* name, int32_t threads, kvilt_device** device) {
  return Guard([&] {
    KVILT_RETURN_IF_ERROR(NotNull(name, "name"));
    kvilt::DeviceOptions options;
    options.threads = threads;
    return HandOut(kvilt::Device::Open(name, options), "device", device);
  });
}

void kvilt_device_close(kvilt_device* device) { delete device; }

kvilt_status kvilt_device_get_spec(const kvilt_device* device, kvilt_device_spec* spec) {
  return Guard([&] {
    KVILT_RETURN_IF_ERROR(NotNull(device, "device"));
    return kvilt::api::ToC(device->device.spec(), spec);
  });
}

kvilt_status kvilt_spec_for(const char* name, kvilt_device_spec* spec) {
  return Guard([&] {
    KVILT_RETURN_IF_ERROR(NotNull(name, "name"));
    const auto found = kvilt::SpecFor(name);
    return found.ok() ? kvilt::api::ToC(*found, spec) : found.status();
  });
}

kvilt_status kvilt_allocate(const kvilt_device* device, int64_t bytes, void** memory) {
  return Guard([&] {
    KVILT_RETURN_IF_ERROR(NotNull(device, "device"));
    KVILT_RETURN_IF_ERROR(NotNull(memory, "memory"));
    const auto allocated = kvilt::api::AllocateHost(bytes);
    if (allocated.ok()) *memory = *allocated;
    return allocated.status();
  });
}

void kvilt_free(void* memory) { kvilt::api::FreeHost(memory); }

// ---------------------------------------------------------------- plan and run

kvilt_status kvilt_make_plan(const kvilt_attention_request* request, const kvilt_device_spec* spec,
                             const kvilt_plan_options* options, kvilt_plan** plan) {
  return Guard([&] {
    kvilt::AttentionRequest attention;
    kvilt::DeviceSpec device_spec;
    kvilt::PlanOptions plan_options;
    KVILT_RETURN_IF_ERROR(kvilt::api::FromC(request, attention));
    KVILT_RETURN_IF_ERROR(kvilt::api::FromC(spec, device_spec));
    KVILT_RETURN_IF_ERROR(kvilt::api::FromC(options, plan_options));
    return HandOut(kvilt::MakePlan(attention, device_spec, plan_options), "plan", plan);
  });
}

void kvilt_plan_free(kvilt_plan* plan) { delete plan; }

kvilt_status kvilt_plan_get_info(const kvilt_plan* plan, kvilt_plan_info* info) {
  return Guard([&] {
    KVILT_RETURN_IF_ERROR(NotNull(plan, "plan"));
    return kvilt::api::ToC(plan->plan, info);
  });
}

kvilt_status kvilt_plan_describe(const kvilt_plan* plan, int32_t explain, int32_t items,
                                 int32_t json, char* text, size_t capacity, size_t* length) {
  return Guard([&] {
    KVILT_RETURN_IF_ERROR(NotNull(plan, "plan"));
    if (capacity > 0) KVILT_RETURN_IF_ERROR(NotNull(text, "text"));
    const kvilt::DescribeOptions options{explain != 0, items != 0};
    const std::string whole =
        json != 0 ? kvilt::DescribeJson(plan->plan, options) : kvilt::Describe(plan->plan, options);
    if (capacity > 0) {
      const std::size_t copied = whole.copy(text, capacity - 1);
      text[copied] = '\0';
    }
    if (length != nullptr) *length = whole.size();
    return Status();
  });
}

kvilt_status kvilt_prepare(const kvilt_device* device, const kvilt_plan* plan,
                           kvilt_prepared** prepared) {
  return Guard([&] {
    KVILT_RETURN_IF_ERROR(NotNull(device, "device"));
    KVILT_RETURN_IF_ERROR(NotNull(plan, "plan"));
    return HandOut(kvilt::Prepare(device->device, plan->plan), "prepared", prepared);
  });
}

void kvilt_prepared_free(kvilt_prepared* prepared) { delete prepared; }

kvilt_status kvilt_prepared_get_info(const kvilt_prepared* prepared, kvilt_plan_info* info) {
  return Guard([&] {
    KVILT_RETURN_IF_ERROR(NotNull(prepared, "prepared"));
    return kvilt::api::ToC(prepared->prepared.plan(), info);
  });
}

kvilt_status kvilt_run(const kvilt_prepared* prepared, const kvilt_attention_request* request,
                       void* workspace, int64_t workspace_bytes, void* stream) {
  return Guard([&] {
    KVILT_RETURN_IF_ERROR(NotNull(prepared, "prepared"));
    const auto bytes = Array(static_cast<std::byte*>(workspace), workspace_bytes, "workspace");
    if (!bytes.ok()) return bytes.status();
    kvilt::AttentionRequest attention;
    KVILT_RETURN_IF_ERROR(kvilt::api::FromC(request, attention));
    return kvilt::Run(prepared->prepared, attention, *bytes, {stream});
  });
}

kvilt_status kvilt_take_error(const kvilt_prepared* prepared) {
  return Guard([&] {
    KVILT_RETURN_IF_ERROR(NotNull(prepared, "prepared"));
    return kvilt::LastError(prepared->prepared);
  });
}

kvilt_status kvilt_update_plan(const kvilt_prepared* prepared,
                               const kvilt_attention_request* request, void* stream) {
  return Guard([&] {
    KVILT_RETURN_IF_ERROR(NotNull(prepared, "prepared"));
    kvilt::AttentionRequest attention;
    KVILT_RETURN_IF_ERROR(kvilt::api::FromC(request, attention));
    return kvilt::UpdatePlan(prepared->prepared, attention, {stream});
  });
}

// ---------------------------------------------------------------- merge, append, dequantize

kvilt_status kvilt_merge_states(const kvilt_device* device, const kvilt_attention_state* states,
                                int64_t state_count, const kvilt_attention_state* result,
                                void* stream) {
  return Guard([&] {
    KVILT_RETURN_IF_ERROR(NotNull(device, "device"));
    const auto given = Array(states, state_count, "states");
    if (!given.ok()) return given.status();
    std::vector<kvilt::AttentionState> from(static_cast<std::size_t>(state_count));
    for (std::int64_t i = 0; i < state_count; ++i) {
      const std::string field = "states[" + std::to_string(i) + "]";
      KVILT_RETURN_IF_ERROR(kvilt::api::FromC(kvilt::api::ElementOf(states, i), field.c_str(),
                                              from[static_cast<std::size_t>(i)]));
    }
    kvilt::AttentionState to;
    KVILT_RETURN_IF_ERROR(kvilt::api::FromC(result, "result", to));
    return kvilt::MergeStates(device->device, from, to, {stream});
  });
}

kvilt_status kvilt_append_kv(const kvilt_device* device, const kvilt_append_request* request,
                             kvilt_health* k_health, kvilt_health* v_health, void* stream) {
  return Guard([&] {
    KVILT_RETURN_IF_ERROR(NotNull(device, "device"));
    kvilt::AppendRequest append;
    KVILT_RETURN_IF_ERROR(kvilt::api::FromC(request, append));
    kvilt::HealthCounters k;
    kvilt::HealthCounters v;
    KVILT_RETURN_IF_ERROR(kvilt::AppendKv(device->device, append, &k, &v, {stream}));
    kvilt::api::AddHealth(k, k_health);
    kvilt::api::AddHealth(v, v_health);
    return Status();
  });
}

kvilt_status kvilt_dequantize_kv(const kvilt_device* device, const kvilt_segment* cache,
                                 const kvilt_tensor* out_k, const kvilt_tensor* out_v,
                                 void* stream) {
  return Guard([&] {
    KVILT_RETURN_IF_ERROR(NotNull(device, "device"));
    kvilt::Segment segment;
    kvilt::TensorView k;
    kvilt::TensorView v;
    KVILT_RETURN_IF_ERROR(kvilt::api::FromC(cache, "cache", segment));
    if (out_k != nullptr) KVILT_RETURN_IF_ERROR(kvilt::api::FromC(*out_k, "out_k", k));
    if (out_v != nullptr) KVILT_RETURN_IF_ERROR(kvilt::api::FromC(*out_v, "out_v", v));
    return kvilt::DequantizeKv(device->device, segment, k, v, {stream});
  });
}
