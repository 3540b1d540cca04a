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

// What a CUDA arch can do, as far as a kernel or the planner asks. Paths are chosen by these and by
// limits, never by comparing `arch` with one value.
struct CudaFeatures {
  bool async_copy = false;        // cp.async: global to shared memory past the registers.
  bool bulk_copy = false;         // cp.async.bulk and its barriers.
  bool wgmma = false;             // Warpgroup MMA with operands in shared memory.
  bool register_split = false;    // setmaxnreg: registers move between producers and consumers.
  bool dependent_launch = false;  // Programmatic dependent launch.
  bool native_e4m3 = false;       // cvt from packed e4m3 and e5m2 to f16.
  bool native_e2m1 = false;       // cvt from packed e2m1 to f16.

  friend bool operator==(const CudaFeatures&, const CudaFeatures&) = default;
};

// The limits that planning reads. A plain value: build one by hand, or by SpecFor, for a machine
// that is not there.
struct DeviceSpec {
  std::string name = "cpu";  // "cpu", "sm_90", ...
  DeviceKind kind = DeviceKind::kCpu;
  int slots = 1;  // Worker threads (CPU), or streaming multiprocessors (CUDA).
  SimdTarget simd = SimdTarget::kScalar;  // CPU only: the widest body that may run.
  std::int64_t l2_bytes = 0;              // Per core (CPU), per device (CUDA).
  double read_gb_per_s = 0;               // Memory bandwidth for estimates; 0 = not known.

  // --- CUDA only ---
  int arch = 0;                           // Compute capability times ten: 80, 90, 121, ...
  std::int64_t smem_per_block_bytes = 0;  // The opt-in limit of one block.
  std::int64_t smem_per_sm_bytes = 0;
  std::int64_t smem_reserved_bytes = 0;  // Of each resident block, taken by the system.
  std::int64_t registers_per_sm = 0;     // 32-bit.
  int threads_per_sm = 0;                // Resident at most.
  int blocks_per_sm = 0;                 // Resident at most.
  double clock_ghz = 0;                  // Boost, for estimates.
  double mma_flops_per_clock = 0;        // Of one SM: mma.sync, 16-bit operands, f32 sums.
  double wgmma_flops_per_clock = 0;      // The same through wgmma; 0 without.
  CudaFeatures features;

  friend bool operator==(const DeviceSpec&, const DeviceSpec&) = default;
};

// The spec of a device by name, present or not: "cpu" (this machine's widest SIMD target, one slot
// per hardware thread), "cpu:avx2" (a named target, whether or not this machine has it), "sm_90"
// (a CUDA arch with the SMs of one product; docs/planner.md has the table), "sm_90:114" (the same
// with so many SMs); "cuda:0" (the GPU that Device::Open opens). Errors: kInvalidArgument for an
// unknown name, kUnsupported for a GPU that is not here.
Result<DeviceSpec> SpecFor(std::string_view name);

// A stream of the device, in which calls are ordered: a CUstream (or cudaStream_t), null = the
// legacy default one. The CPU has one order, the caller's, and accepts only the default value.
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
  // `name`: "cpu", "cpu:<target>" with a SIMD target that this machine has, or "cuda:<ordinal>".
  // Errors: kInvalidArgument (unknown name; threads < 0 or > 1024, or != 0 on a GPU), kUnsupported
  // (not present here; no CUDA driver).
  static Result<Device> Open(std::string_view name, DeviceOptions options = {});

  const DeviceSpec& spec() const;
  DeviceId id() const;

  struct Impl;
  const std::shared_ptr<Impl>& impl() const { return impl_; }  // For the library itself.

 private:
  explicit Device(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

// Copies between the host and the memory of a device, in the order of the stream. On a GPU the host
// memory must stay as it is until the stream was waited for; on the CPU a copy is done at once.
// Errors: kInvalidArgument (bytes < 0), kRuntime.
Status CopyToDevice(const Device& device, void* to, const void* from, std::int64_t bytes,
                    Stream stream = {});
Status CopyToHost(const Device& device, void* to, const void* from, std::int64_t bytes,
                  Stream stream = {});
// Waits for what was enqueued.
Status Synchronize(const Device& device, Stream stream = {});

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
    std::shared_ptr<void> owner;  // Of device memory; null: the host's.
  };
  std::unique_ptr<std::byte, Release> data_;
  std::int64_t size_bytes_ = 0;
};

}  // namespace kvilt
