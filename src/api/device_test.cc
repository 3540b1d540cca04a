#include "kvilt/device.h"

#include <gtest/gtest.h>

#include <limits>

#include "src/core/simd_target.h"
#include "src/cpu/simd_targets.h"

namespace kvilt {
namespace {

DeviceOptions Threads(int threads) {
  DeviceOptions options;
  options.threads = threads;
  return options;
}

TEST(Device, OpensThisMachinesWidestTarget) {
  const Device device = Device::Open("cpu", Threads(2)).value();
  EXPECT_EQ(device.spec().kind, DeviceKind::kCpu);
  EXPECT_EQ(device.spec().slots, 2);
  EXPECT_EQ(device.spec().simd, cpu::SupportedTargets().back());
  EXPECT_EQ(device.id(), DeviceId{});
  EXPECT_GE(Device::Open("cpu")->spec().slots, 1);
}

TEST(Device, OpensEveryTargetItHasAndNoOther) {
  for (const SimdTarget target : core::kSimdTargets) {
    const std::string name = "cpu:" + std::string(Name(target));
    const auto device = Device::Open(name, Threads(1));
    EXPECT_EQ(device.ok(), cpu::Supports(target)) << name;
    if (device.ok()) {
      EXPECT_EQ(device->spec().simd, target);
    } else {
      EXPECT_EQ(device.status().code(), StatusCode::kUnsupported);
    }
    // A spec needs no machine.
    const auto spec = SpecFor(name);
    ASSERT_TRUE(spec.ok()) << name;
    EXPECT_EQ(spec->simd, target);
  }
}

TEST(Device, RefusalsNameWhatIsAccepted) {
  for (const char* name : {"", "gpu", "cpu:", "cpu:avx3", "CPU"}) {
    EXPECT_EQ(Device::Open(name).status().code(), StatusCode::kInvalidArgument) << name;
    EXPECT_EQ(SpecFor(name).status().code(), StatusCode::kInvalidArgument) << name;
  }
  EXPECT_NE(SpecFor("cpu:avx3").status().message().find("avx512_bf16"), std::string::npos);
  EXPECT_NE(SpecFor("cpu:avx3").status().message().find("cuda:0"), std::string::npos);
  EXPECT_EQ(Device::Open("cpu", Threads(-1)).status().field(), "options.threads");
  EXPECT_EQ(Device::Open("cpu", Threads(1025)).status().field(), "options.threads");
}

// With a GPU and without: "cuda:0" opens, or says what is missing.
TEST(Device, OpensAGpuOrSaysWhyNot) {
  const auto gpu = Device::Open("cuda:0");
  const auto spec = SpecFor("cuda:0");
  EXPECT_EQ(gpu.ok(), spec.ok());
  if (gpu.ok()) {
    EXPECT_EQ(gpu->spec().kind, DeviceKind::kCuda);
    EXPECT_EQ(gpu->spec(), *spec);
    EXPECT_EQ(gpu->id().kind, DeviceKind::kCuda);
  } else {
    EXPECT_EQ(gpu.status().code(), StatusCode::kUnsupported);
    EXPECT_EQ(spec.status().code(), StatusCode::kUnsupported);
    EXPECT_FALSE(gpu.status().message().empty());
  }
  EXPECT_EQ(Device::Open("cuda:1000").status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(Device::Open("cuda:0", Threads(2)).status().field(), "options.threads");
  for (const char* name : {"cuda:", "cuda:-1", "cuda:0x", "cuda:99999999999", "cuda0"}) {
    EXPECT_EQ(Device::Open(name).status().code(), StatusCode::kInvalidArgument) << name;
    EXPECT_EQ(SpecFor(name).status().code(), StatusCode::kInvalidArgument) << name;
  }
}

TEST(Buffer, AlignedAndRefusesNonsense) {
  const Device device = Device::Open("cpu", Threads(1)).value();
  for (const std::int64_t bytes : {1, 255, 256, 100000}) {
    const Buffer buffer = Buffer::Allocate(device, bytes).value();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 256, 0U);
    EXPECT_EQ(buffer.size_bytes(), bytes);
    buffer.data()[bytes - 1] = std::byte{1};
  }
  EXPECT_EQ(Buffer::Allocate(device, 0)->size_bytes(), 0);
  EXPECT_EQ(Buffer::Allocate(device, -1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Buffer::Allocate(device, std::numeric_limits<std::int64_t>::max()).status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(Buffer::Allocate(device, std::int64_t{1} << 60).status().code(),
            StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace kvilt
