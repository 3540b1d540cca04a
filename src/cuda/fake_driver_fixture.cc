#include "src/cuda/fake_driver_fixture.h"

#include <cstdlib>
#include <cstring>
#include <map>

namespace kvilt::cuda {
namespace {

FakeDriverState state;
thread_local int context_depth = 0;
thread_local int capture_mode = 0;  // Global, as a thread begins.

template <class Handle>
Handle MakeHandle(std::uintptr_t value) {
  return reinterpret_cast<Handle>(value);  // NOLINT(performance-no-int-to-ptr)
}

// The result of a call that needs a context, and may have been told to fail.
DriverResult Outcome(const char* member) {
  constexpr DriverResult kInvalidContext = 201;
  if (context_depth == 0) return kInvalidContext;
  const std::lock_guard lock(state.mutex);
  return state.fails != nullptr && std::strcmp(state.fails, member) == 0 ? kDriverOutOfMemory
                                                                         : kDriverSuccess;
}

// As a capture in global mode elsewhere has it: unsafe calls need the relaxed mode.
DriverResult UnsafeOutcome(const char* member) {
  constexpr DriverResult kCaptureUnsupported = 900;
  return capture_mode == kCaptureModeRelaxed ? Outcome(member) : kCaptureUnsupported;
}

void Count(int& counter) {
  const std::lock_guard lock(state.mutex);
  ++counter;
}

DriverResult Attribute(int* value, int attribute, DeviceHandle) {
  const std::map<int, int> values = {{kAttributeMajor, state.major},
                                     {kAttributeMinor, state.minor},
                                     {kAttributeSmCount, 132},
                                     {kAttributeL2Bytes, 60 << 20},
                                     {kAttributeSmemPerBlockOptin, 232448},
                                     {kAttributeSmemPerSm, 233472},
                                     {kAttributeSmemReserved, 1024},
                                     {kAttributeRegistersPerSm, 65536},
                                     {kAttributeThreadsPerSm, 2048},
                                     {kAttributeBlocksPerSm, 32},
                                     {kAttributeClockKhz, 1830000},
                                     {kAttributeMemoryClockKhz, 3201000},
                                     {kAttributeMemoryBusBits, 6144}};
  *value = values.at(attribute);
  return kDriverSuccess;
}

void FillDevices(Driver& d) {
  d.GetErrorName = [](DriverResult result, const char** text) {
    *text = result == kDriverOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OTHER";
    return kDriverSuccess;
  };
  d.GetErrorString = [](DriverResult, const char** text) {
    *text = "the text of the driver";
    return kDriverSuccess;
  };
  d.DeviceGetCount = [](int* count) {
    *count = state.devices;
    return kDriverSuccess;
  };
  d.DeviceGet = [](DeviceHandle* device, int ordinal) {
    *device = ordinal;
    return kDriverSuccess;
  };
  d.DeviceGetName = [](char* name, int, DeviceHandle) {
    std::strcpy(name, "Fake H200");
    return kDriverSuccess;
  };
  d.DeviceGetAttribute = Attribute;
  d.DevicePrimaryCtxRetain = [](ContextHandle* context, DeviceHandle) {
    Count(state.contexts_retained);
    *context = MakeHandle<ContextHandle>(1);
    return kDriverSuccess;
  };
  d.DevicePrimaryCtxRelease = [](DeviceHandle) {
    const std::lock_guard lock(state.mutex);
    --state.contexts_retained;
    return kDriverSuccess;
  };
  d.CtxPushCurrent = [](ContextHandle) {
    ++context_depth;
    return kDriverSuccess;
  };
  d.CtxPopCurrent = [](ContextHandle*) {
    --context_depth;
    return kDriverSuccess;
  };
  d.ThreadExchangeStreamCaptureMode = [](int* mode) {
    std::swap(*mode, capture_mode);
    return kDriverSuccess;
  };
}

void FillMemory(Driver& d) {
  d.MemAlloc = [](DevicePointer* pointer, std::size_t bytes) {
    if (const DriverResult r = UnsafeOutcome("MemAlloc"); r != kDriverSuccess) return r;
    *pointer = reinterpret_cast<std::uintptr_t>(std::malloc(bytes));
    return kDriverSuccess;
  };
  d.MemFree = [](DevicePointer pointer) {
    std::free(AsPointer(pointer));
    return kDriverSuccess;
  };
  d.MemHostAlloc = [](void** pointer, std::size_t bytes, unsigned) {
    if (const DriverResult r = UnsafeOutcome("MemHostAlloc"); r != kDriverSuccess) return r;
    Count(state.pinned_allocated);
    *pointer = std::malloc(bytes);
    return kDriverSuccess;
  };
  d.MemFreeHost = [](void* pointer) {
    Count(state.pinned_freed);
    std::free(pointer);
    return kDriverSuccess;
  };
  d.MemcpyHtoDAsync = [](DevicePointer to, const void* from, std::size_t bytes, StreamHandle) {
    if (const DriverResult r = Outcome("MemcpyHtoDAsync"); r != kDriverSuccess) return r;
    std::memcpy(AsPointer(to), from, bytes);
    return kDriverSuccess;
  };
}

void FillStreams(Driver& d) {
  d.StreamIsCapturing = [](StreamHandle, int* capturing) {
    *capturing = state.capturing;
    return Outcome("StreamIsCapturing");
  };
  d.StreamSynchronize = [](StreamHandle) {
    Count(state.waits);
    return Outcome("StreamSynchronize");
  };
  d.EventCreate = [](EventHandle* event, unsigned) {
    Count(state.events_created);
    *event = MakeHandle<EventHandle>(2);
    return UnsafeOutcome("EventCreate");
  };
  d.EventDestroy = [](EventHandle) { return Outcome("EventDestroy"); };
  d.EventRecord = [](EventHandle, StreamHandle) { return Outcome("EventRecord"); };
  d.EventQuery = [](EventHandle) {
    const DriverResult r = UnsafeOutcome("EventQuery");
    const std::lock_guard lock(state.mutex);
    return r == kDriverSuccess && !state.events_done ? kDriverNotReady : r;
  };
  d.EventSynchronize = [](EventHandle) {
    const std::lock_guard lock(state.mutex);
    ++state.waits;
    state.events_done = true;
    return kDriverSuccess;
  };
}

void FillKernels(Driver& d) {
  d.ModuleLoadData = [](ModuleHandle* module, const void*) {
    if (const DriverResult r = UnsafeOutcome("ModuleLoadData"); r != kDriverSuccess) return r;
    Count(state.modules_loaded);
    *module = MakeHandle<ModuleHandle>(3);
    return kDriverSuccess;
  };
  d.ModuleUnload = [](ModuleHandle) {
    const std::lock_guard lock(state.mutex);
    --state.modules_loaded;
    return kDriverSuccess;
  };
  d.ModuleGetFunction = [](FunctionHandle* function, ModuleHandle, const char*) {
    *function = MakeHandle<FunctionHandle>(4);
    return Outcome("ModuleGetFunction");
  };
  d.FuncGetAttribute = [](int* value, int, FunctionHandle) {
    *value = 48;
    return Outcome("FuncGetAttribute");
  };
  d.FuncSetAttribute = [](FunctionHandle, int, int) { return Outcome("FuncSetAttribute"); };
  d.LaunchKernel = [](const LaunchConfig* config, FunctionHandle, void** parameters, void**) {
    if (const DriverResult r = Outcome("LaunchKernel"); r != kDriverSuccess) return r;
    FakeLaunch launch{*config};
    launch.dependent = config->attribute_count == 1 &&
                       config->attributes[0].id == kLaunchProgrammaticSerialization &&
                       config->attributes[0].programmatic_stream_serialization == 1;
    std::memcpy(&launch.first_argument, parameters[0], sizeof(int));
    const std::lock_guard lock(state.mutex);
    state.launches.push_back(launch);
    return kDriverSuccess;
  };
}

}  // namespace

FakeDriverState& Fake() { return state; }

void ResetFake() {
  state.devices = 1;
  state.major = 9;
  state.minor = 0;
  state.capturing = false;
  state.events_done = true;
  state.fails = nullptr;
  state.contexts_retained = state.modules_loaded = 0;
  state.pinned_allocated = state.pinned_freed = state.events_created = state.waits = 0;
  state.launches.clear();
}

int FakeContextDepth() { return context_depth; }
int FakeCaptureMode() { return capture_mode; }

const Driver& FakeDriver() {
  static const Driver driver = [] {
    Driver d;
    FillDevices(d);
    FillMemory(d);
    FillStreams(d);
    FillKernels(d);
    return d;
  }();
  return driver;
}

}  // namespace kvilt::cuda
