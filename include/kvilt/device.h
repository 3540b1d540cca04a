// Device: where work runs. DeviceSpec: its limits as a plain value, enough to plan without it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "kvilt/status.h"
#include "kvilt/tensor.h"

namespace kvilt {

// The SIMD bodies of the CPU backend, narrowest first.
enum class SimdTarget : std::uint8_t {
  kScalar = 0,
  kSse4 = 1,
  kNeon = 2,
  kAvx2 = 3,
  kAvx512 = 4,      // F, BW, DQ, VL through Highway.
  kAvx512Bf16 = 5,  // The island of intrinsics: plus VBMI, VNNI and BF16.
};
std::string_view Name(
    SimdTarget target);  // "scalar", "sse4", "neon", "avx2", "avx512", "avx512_bf16"

// The limits that planning reads. A plain value: build one by hand, or by SpecFor, for a machine
// that is not there.
struct DeviceSpec {
  std::string name = "cpu";  // "cpu", "sm_90", ...
  DeviceKind kind = DeviceKind::kCpu;
  int slots = 1;  // Worker threads (CPU), or streaming multiprocessors (CUDA).
  SimdTarget simd = SimdTarget::kScalar;  // CPU only: the widest body that may run.
  int arch = 0;                           // CUDA only: 80, 90, 121, ...
  std::int64_t l2_bytes = 0;              // Per core (CPU), per device (CUDA).
  std::int64_t smem_per_block_bytes = 0;  // CUDA only: the opt-in limit of one block.
  std::int64_t smem_per_sm_bytes = 0;     // CUDA only.
  std::int64_t registers_per_sm = 0;      // CUDA only.
  double read_gb_per_s = 0;               // Memory bandwidth for estimates; 0 = not known.

  friend bool operator==(const DeviceSpec&, const DeviceSpec&) = default;
};

// The spec of a device by name, present or not: "cpu" (this machine's widest SIMD target, one slot
// per hardware thread), "cpu:avx2" (a named target, whether or not this machine has it).
// Errors: kInvalidArgument for an unknown name, kUnsupported for devices that cannot be planned.
Result<DeviceSpec> SpecFor(std::string_view name);

// A stream of the device, in which calls are ordered. The CPU has one order, the caller's, and
// accepts only the default value.
struct Stream {
  void* handle = nullptr;
};

struct DeviceOptions {
  // Affects speed only (and split counts in kAuto). 0 = one worker per hardware thread.
  int threads = 0;
};

// An opened device. A cheap handle: copies share the same workers. Thread-safe; calls on one CPU
// device from several threads run one after another.
class Device {
 public:
  // `name`: "cpu" or "cpu:<target>" with a SIMD target that this machine has.
  // Errors: kInvalidArgument (unknown name, threads < 0 or > 1024), kUnsupported (not present
  // here).
  static Result<Device> Open(std::string_view name, DeviceOptions options = {});

  const DeviceSpec& spec() const;
  DeviceId id() const;

  struct Impl;
  const std::shared_ptr<Impl>& impl() const { return impl_; }  // For the library itself.

 private:
  explicit Device(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

// Owned memory on a device, aligned to 256 bytes, not initialised. Movable.
class Buffer {
 public:
  Buffer() = default;
  // Errors: kInvalidArgument (bytes < 0), kResourceExhausted.
  static Result<Buffer> Allocate(const Device& device, std::int64_t bytes);

  std::byte* data() const { return data_.get(); }
  std::int64_t size_bytes() const { return size_bytes_; }

 private:
  struct Release {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Release> data_;
  std::int64_t size_bytes_ = 0;
};

}  // namespace kvilt
