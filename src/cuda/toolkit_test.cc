// What driver.h and nvrtc.h declare, against the toolkit's headers. The one file that may include
// them; built only where they are (CMakeLists.txt).
#include <cuda.h>
#include <gtest/gtest.h>
#include <nvrtc.h>

#include <cstddef>
#include <type_traits>

#include "src/cuda/driver.h"
#include "src/cuda/nvrtc.h"

namespace kvilt::cuda {
namespace {

// Whether a caller that believes `Ours` passes what a function of `Theirs` reads: the same size and
// kind, through all levels of pointers, const where they are const.
template <class Ours, class Theirs>
struct Agree {
  static constexpr bool kBothNumbers = (std::is_integral_v<Ours> || std::is_enum_v<Ours>)&&(
      std::is_integral_v<Theirs> || std::is_enum_v<Theirs>);
  static constexpr bool kSame = std::is_same_v<Ours, Theirs>;
  static constexpr bool kBothClasses = std::is_class_v<Ours> && std::is_class_v<Theirs>;
  static constexpr bool value = [] {
    if constexpr (kBothNumbers) return sizeof(Ours) == sizeof(Theirs);
    return kSame || kBothClasses;
  }();
};
template <class Ours, class Theirs>
struct Agree<Ours*, Theirs*> {
  static constexpr bool value =
      std::is_const_v<Ours> == std::is_const_v<Theirs> &&
      Agree<std::remove_const_t<Ours>, std::remove_const_t<Theirs>>::value;
};
template <class Ours, class... OurArgs, class Theirs, class... TheirArgs>
struct Agree<Ours (*)(OurArgs...), Theirs (*)(TheirArgs...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(OurArgs) == sizeof...(TheirArgs)) {
      return Agree<Ours, Theirs>::value && (Agree<OurArgs, TheirArgs>::value && ...);
    } else {
      return false;
    }
  }();
};

#define KVILT_COMPARE(member, symbol, parameters)                          \
  static_assert(Agree<decltype(Driver::member), decltype(&symbol)>::value, \
                #symbol " is declared otherwise in cuda.h");
KVILT_DRIVER_CALLS(KVILT_COMPARE)
#undef KVILT_COMPARE
#define KVILT_COMPARE(member, symbol, parameters)                              \
  static_assert(Agree<decltype(NvrtcCalls::member), decltype(&symbol)>::value, \
                #symbol " is declared otherwise in nvrtc.h");
KVILT_NVRTC_CALLS(KVILT_COMPARE)
#undef KVILT_COMPARE
static_assert(Agree<decltype(NvrtcCalls::GetErrorString), decltype(&nvrtcGetErrorString)>::value);
// The comparison can fail.
static_assert(!Agree<int (*)(int), CUresult (*)(std::size_t)>::value);
static_assert(!Agree<int (*)(void*), CUresult (*)(const void*)>::value);
static_assert(!Agree<int (*)(int*), CUresult (*)(int)>::value);

static_assert(sizeof(LaunchAttribute) == sizeof(CUlaunchAttribute));
static_assert(offsetof(LaunchAttribute, programmatic_stream_serialization) ==
              offsetof(CUlaunchAttribute, value.programmaticStreamSerializationAllowed));
static_assert(sizeof(LaunchConfig) == sizeof(CUlaunchConfig));
static_assert(offsetof(LaunchConfig, grid_x) == offsetof(CUlaunchConfig, gridDimX));
static_assert(offsetof(LaunchConfig, block_x) == offsetof(CUlaunchConfig, blockDimX));
static_assert(offsetof(LaunchConfig, shared_bytes) == offsetof(CUlaunchConfig, sharedMemBytes));
static_assert(offsetof(LaunchConfig, stream) == offsetof(CUlaunchConfig, hStream));
static_assert(offsetof(LaunchConfig, attributes) == offsetof(CUlaunchConfig, attrs));
static_assert(offsetof(LaunchConfig, attribute_count) == offsetof(CUlaunchConfig, numAttrs));

template <class Theirs>
constexpr int Number(Theirs value) {
  return static_cast<int>(value);
}

TEST(Toolkit, ConstantsAreTheSame) {
  EXPECT_EQ(kDriverSuccess, Number(CUDA_SUCCESS));
  EXPECT_EQ(kDriverInvalidValue, Number(CUDA_ERROR_INVALID_VALUE));
  EXPECT_EQ(kDriverOutOfMemory, Number(CUDA_ERROR_OUT_OF_MEMORY));
  EXPECT_EQ(kDriverNotReady, Number(CUDA_ERROR_NOT_READY));
  EXPECT_EQ(kAttributeClockKhz, Number(CU_DEVICE_ATTRIBUTE_CLOCK_RATE));
  EXPECT_EQ(kAttributeSmCount, Number(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  EXPECT_EQ(kAttributeMemoryClockKhz, Number(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE));
  EXPECT_EQ(kAttributeMemoryBusBits, Number(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH));
  EXPECT_EQ(kAttributeL2Bytes, Number(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE));
  EXPECT_EQ(kAttributeThreadsPerSm, Number(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR));
  EXPECT_EQ(kAttributeMajor, Number(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
  EXPECT_EQ(kAttributeMinor, Number(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  EXPECT_EQ(kAttributeSmemPerSm, Number(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR));
  EXPECT_EQ(kAttributeRegistersPerSm, Number(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR));
  EXPECT_EQ(kAttributeSmemPerBlockOptin,
            Number(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
  EXPECT_EQ(kAttributeBlocksPerSm, Number(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR));
  EXPECT_EQ(kAttributeSmemReserved, Number(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK));
  EXPECT_EQ(kFunctionSharedBytes, Number(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES));
  EXPECT_EQ(kFunctionMaxDynamicSharedBytes,
            Number(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES));
  EXPECT_EQ(kLaunchProgrammaticSerialization,
            Number(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION));
  EXPECT_EQ(Number(kStreamNonBlocking), Number(CU_STREAM_NON_BLOCKING));
  EXPECT_EQ(Number(kEventDisableTiming), Number(CU_EVENT_DISABLE_TIMING));
  EXPECT_EQ(Number(kHostAllocPortable), CU_MEMHOSTALLOC_PORTABLE);
  EXPECT_EQ(kPointerMemoryType, Number(CU_POINTER_ATTRIBUTE_MEMORY_TYPE));
  EXPECT_EQ(kPointerIsManaged, Number(CU_POINTER_ATTRIBUTE_IS_MANAGED));
  EXPECT_EQ(kPointerDeviceOrdinal, Number(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL));
  EXPECT_EQ(Number(kMemoryTypeDevice), Number(CU_MEMORYTYPE_DEVICE));
  EXPECT_EQ(kCaptureModeThreadLocal, Number(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_EQ(kCaptureModeRelaxed, Number(CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_EQ(kNvrtcSuccess, Number(NVRTC_SUCCESS));
  EXPECT_EQ(kNvrtcCompilationError, Number(NVRTC_ERROR_COMPILATION));
}

}  // namespace
}  // namespace kvilt::cuda
