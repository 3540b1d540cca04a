// The CUDA driver, opened at run time: one binary runs with a GPU and without.
//
// Types, constants and calls that Kvilt uses are declared here, so no toolkit is needed to build;
// toolkit_test.cc compares them with the toolkit's header where there is one.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "kvilt/status.h"

namespace kvilt::cuda {

// ---------------------------------------------------------------- types

using DriverResult = int;                  // CUresult
using DevicePointer = unsigned long long;  // CUdeviceptr
using DeviceHandle = int;                  // CUdevice
using ContextHandle = struct ContextTag*;
using ModuleHandle = struct ModuleTag*;
using FunctionHandle = struct FunctionTag*;
using StreamHandle = struct StreamTag*;  // Null: the legacy default stream.
using EventHandle = struct EventTag*;
using GraphHandle = struct GraphTag*;
using GraphExecHandle = struct GraphExecTag*;

// With unified addressing a device address is a pointer of the process too.
inline std::byte* AsPointer(DevicePointer pointer) {
  return reinterpret_cast<std::byte*>(pointer);  // NOLINT(performance-no-int-to-ptr)
}

struct LaunchAttribute {  // CUlaunchAttribute
  int id;
  char padding[4];
  union {
    char bytes[64];
    int programmatic_stream_serialization;
  };
};
struct LaunchConfig {  // CUlaunchConfig
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
  StreamHandle stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

inline constexpr DriverResult kDriverSuccess = 0;
inline constexpr DriverResult kDriverInvalidValue = 1;
inline constexpr DriverResult kDriverOutOfMemory = 2;
inline constexpr DriverResult kDriverNotReady = 600;

inline constexpr int kAttributeClockKhz = 13;  // CUdevice_attribute
inline constexpr int kAttributeSmCount = 16;
inline constexpr int kAttributeMemoryClockKhz = 36;
inline constexpr int kAttributeMemoryBusBits = 37;
inline constexpr int kAttributeL2Bytes = 38;
inline constexpr int kAttributeThreadsPerSm = 39;
inline constexpr int kAttributeMajor = 75;
inline constexpr int kAttributeMinor = 76;
inline constexpr int kAttributeSmemPerSm = 81;
inline constexpr int kAttributeRegistersPerSm = 82;
inline constexpr int kAttributeSmemPerBlockOptin = 97;
inline constexpr int kAttributeBlocksPerSm = 106;
inline constexpr int kAttributeSmemReserved = 111;

inline constexpr int kFunctionSharedBytes = 1;  // CUfunction_attribute: the static part
inline constexpr int kFunctionMaxDynamicSharedBytes = 8;

inline constexpr int kLaunchProgrammaticSerialization = 6;  // CUlaunchAttributeID
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kHostAllocPortable = 1;
inline constexpr int kPointerMemoryType = 2;  // CUpointer_attribute
inline constexpr int kPointerIsManaged = 8;
inline constexpr int kPointerDeviceOrdinal = 9;
inline constexpr unsigned kMemoryTypeDevice = 2;   // CUmemorytype
inline constexpr int kCaptureModeThreadLocal = 1;  // CUstreamCaptureMode
inline constexpr int kCaptureModeRelaxed = 2;

// ---------------------------------------------------------------- calls

// X(member, symbol, parameters). Symbols are the versions that drivers of CUDA 12 and 13 export.
#define KVILT_DRIVER_CALLS(X)                                                                  \
  X(GetErrorName, cuGetErrorName, (DriverResult, const char**))                                \
  X(GetErrorString, cuGetErrorString, (DriverResult, const char**))                            \
  X(Init, cuInit, (unsigned))                                                                  \
  X(DriverGetVersion, cuDriverGetVersion, (int*))                                              \
  X(DeviceGet, cuDeviceGet, (DeviceHandle*, int))                                              \
  X(DeviceGetCount, cuDeviceGetCount, (int*))                                                  \
  X(DeviceGetName, cuDeviceGetName, (char*, int, DeviceHandle))                                \
  X(DeviceGetAttribute, cuDeviceGetAttribute, (int*, int, DeviceHandle))                       \
  X(DevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (ContextHandle*, DeviceHandle))          \
  X(DevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (DeviceHandle))                     \
  X(CtxPushCurrent, cuCtxPushCurrent_v2, (ContextHandle))                                      \
  X(CtxPopCurrent, cuCtxPopCurrent_v2, (ContextHandle*))                                       \
  X(MemGetInfo, cuMemGetInfo_v2, (std::size_t*, std::size_t*))                                 \
  X(MemAlloc, cuMemAlloc_v2, (DevicePointer*, std::size_t))                                    \
  X(MemFree, cuMemFree_v2, (DevicePointer))                                                    \
  X(MemHostAlloc, cuMemHostAlloc, (void**, std::size_t, unsigned))                             \
  X(MemFreeHost, cuMemFreeHost, (void*))                                                       \
  X(MemcpyHtoDAsync, cuMemcpyHtoDAsync_v2,                                                     \
    (DevicePointer, const void*, std::size_t, StreamHandle))                                   \
  X(MemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, (void*, DevicePointer, std::size_t, StreamHandle))  \
  X(MemcpyDtoDAsync, cuMemcpyDtoDAsync_v2,                                                     \
    (DevicePointer, DevicePointer, std::size_t, StreamHandle))                                 \
  X(MemsetD8Async, cuMemsetD8Async, (DevicePointer, unsigned char, std::size_t, StreamHandle)) \
  X(PointerGetAttribute, cuPointerGetAttribute, (void*, int, DevicePointer))                   \
  X(StreamCreate, cuStreamCreate, (StreamHandle*, unsigned))                                   \
  X(StreamSynchronize, cuStreamSynchronize, (StreamHandle))                                    \
  X(StreamDestroy, cuStreamDestroy_v2, (StreamHandle))                                         \
  X(StreamIsCapturing, cuStreamIsCapturing, (StreamHandle, int*))                              \
  X(StreamBeginCapture, cuStreamBeginCapture_v2, (StreamHandle, int))                          \
  X(StreamEndCapture, cuStreamEndCapture, (StreamHandle, GraphHandle*))                        \
  X(ThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, (int*))                \
  X(GraphInstantiate, cuGraphInstantiateWithFlags,                                             \
    (GraphExecHandle*, GraphHandle, unsigned long long))                                       \
  X(GraphLaunch, cuGraphLaunch, (GraphExecHandle, StreamHandle))                               \
  X(GraphExecDestroy, cuGraphExecDestroy, (GraphExecHandle))                                   \
  X(GraphDestroy, cuGraphDestroy, (GraphHandle))                                               \
  X(EventCreate, cuEventCreate, (EventHandle*, unsigned))                                      \
  X(EventRecord, cuEventRecord, (EventHandle, StreamHandle))                                   \
  X(EventQuery, cuEventQuery, (EventHandle))                                                   \
  X(EventSynchronize, cuEventSynchronize, (EventHandle))                                       \
  X(EventElapsedTime, cuEventElapsedTime, (float*, EventHandle, EventHandle))                  \
  X(EventDestroy, cuEventDestroy_v2, (EventHandle))                                            \
  X(ModuleLoadData, cuModuleLoadData, (ModuleHandle*, const void*))                            \
  X(ModuleUnload, cuModuleUnload, (ModuleHandle))                                              \
  X(ModuleGetFunction, cuModuleGetFunction, (FunctionHandle*, ModuleHandle, const char*))      \
  X(ModuleGetGlobal, cuModuleGetGlobal_v2,                                                     \
    (DevicePointer*, std::size_t*, ModuleHandle, const char*))                                 \
  X(FuncGetAttribute, cuFuncGetAttribute, (int*, int, FunctionHandle))                         \
  X(FuncSetAttribute, cuFuncSetAttribute, (FunctionHandle, int, int))                          \
  X(LaunchKernel, cuLaunchKernelEx, (const LaunchConfig*, FunctionHandle, void**, void**))

// A table of the driver's calls. A plain value: tests fill one with calls of their own.
struct Driver {
// NOLINTNEXTLINE(bugprone-macro-parentheses): names, not values.
#define KVILT_MEMBER(member, symbol, parameters) DriverResult(*member) parameters = nullptr;
  KVILT_DRIVER_CALLS(KVILT_MEMBER)
#undef KVILT_MEMBER
};

// This machine's driver, opened and initialised once per process. Thread-safe.
// Errors: kUnsupported (no driver, one without a call that we need, no GPU that it can use).
Result<const Driver*> LoadDriver();

// The calls of one library. Errors: kUnsupported, naming the file, and the call where one is
// missing.
Result<Driver> OpenDriver(const char* path);

// Ok for success; else kRuntime, with the call as the field, "<call>(<subject>)" where a subject is
// given (the kernel's name), and the driver's name and text of the error.
Status DriverStatus(const Driver& driver, DriverResult result, const char* call,
                    std::string_view subject = {});

// Returns the Status of driver.member(...) from the enclosing function when it is an error.
#define KVILT_DRIVER_CALL(driver, member, ...)                                      \
  do {                                                                              \
    const ::kvilt::cuda::DriverResult kvilt_result_ = (driver).member(__VA_ARGS__); \
    if (kvilt_result_ != ::kvilt::cuda::kDriverSuccess) {                           \
      return ::kvilt::cuda::DriverStatus(driver, kvilt_result_,                     \
                                         ::kvilt::cuda::driver_symbol::k##member);  \
    }                                                                               \
  } while (false)

// The driver's name of each call, for messages.
namespace driver_symbol {
#define KVILT_SYMBOL(member, symbol, parameters) inline constexpr char k##member[] = #symbol;
KVILT_DRIVER_CALLS(KVILT_SYMBOL)
#undef KVILT_SYMBOL
}  // namespace driver_symbol

}  // namespace kvilt::cuda
