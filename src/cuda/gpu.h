// Gpu: one opened device of the driver. Kernels, launches, memory, streams.
//
// Calls enqueue on the stream they are given and return: none waits unless its name says so. The
// caller's current context is left as it was found. Library calls that a capturing stream would
// forbid to its thread (allocating, loading, asking events) are made in relaxed capture mode: they
// do not become part of the graph and do not break it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "kvilt/device.h"
#include "kvilt/status.h"
#include "src/cuda/compiler.h"
#include "src/cuda/driver.h"
#include "src/cuda/kernel_key.h"

namespace kvilt::cuda {

// A kernel loaded on a Gpu; lives as long as the Gpu.
struct Kernel {
  std::string name;  // "kvilt_attention"
  FunctionHandle function = nullptr;
  ModuleHandle module = nullptr;
  int max_smem_bytes = 0;  // Dynamic, of one block.
  CubinStats stats;
};

struct LaunchShape {
  int grid = 0;  // Blocks; 0 launches nothing.
  int threads = 0;
  std::int64_t smem_bytes = 0;
  // Programmatic dependent launch: the kernel may start before the stream's previous one ended, and
  // waits for it by itself (simt::WaitForPrevious).
  bool dependent = false;
};

// What a pointer of the caller's is.
struct PointerInfo {
  bool on_device = false;  // Device or managed memory.
  int ordinal = -1;        // Of the device that it belongs to, when the driver knows it.
};

// Thread-safe.
class Gpu {
 public:
  // The same object for the same ordinal while somebody holds it. It uses the device's primary
  // context, as the CUDA runtime and frameworks do, so their pointers and streams are good here.
  // Errors: kUnsupported (no driver, no such device, an arch before sm_80), kRuntime.
  static Result<std::shared_ptr<Gpu>> Open(int ordinal);
  // With a driver and a compiler that outlive the Gpu; a new object each time.
  static Result<std::shared_ptr<Gpu>> OpenWith(const Driver& driver, Compiler& compiler,
                                               int ordinal);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  int ordinal() const { return ordinal_; }
  const std::string& product() const { return product_; }  // "NVIDIA H200"
  // Limits as the driver says them. What it does not say stands at its default: `features`, the MMA
  // rates; src/api takes these from the planner's table of archs.
  const DeviceSpec& spec() const { return spec_; }

  // ---- kernels
  // Compiled and loaded at the first call, found afterwards. The pointer lives as long as the Gpu.
  Result<const Kernel*> GetKernel(const KernelSpec& spec);
  // `args`: the kernel's one argument, copied before the call returns. Allocates nothing.
  // Errors: kFailedPrecondition (arg_bytes or smem_bytes are not the kernel's), kRuntime.
  Status Launch(const Kernel& kernel, const LaunchShape& shape, StreamHandle stream,
                const void* args, std::size_t arg_bytes) const;

  // ---- memory
  // 256-byte aligned. Errors: kResourceExhausted.
  Result<DevicePointer> Alloc(std::int64_t bytes) const;
  // Waits for the device where the driver does.
  void Free(DevicePointer pointer) const;
  Result<std::byte*> AllocPinned(std::int64_t bytes) const;
  void FreePinned(std::byte* pointer) const;
  Status CopyToDevice(DevicePointer to, const void* from, std::int64_t bytes,
                      StreamHandle stream) const;
  Status CopyToHost(void* to, DevicePointer from, std::int64_t bytes, StreamHandle stream) const;
  Status CopyOnDevice(DevicePointer to, DevicePointer from, std::int64_t bytes,
                      StreamHandle stream) const;
  Status Fill(DevicePointer to, std::uint8_t value, std::int64_t bytes, StreamHandle stream) const;
  Result<PointerInfo> Describe(const void* pointer) const;
  struct MemoryInfo {
    std::int64_t free_bytes = 0;
    std::int64_t total_bytes = 0;
  };
  Result<MemoryInfo> Memory() const;

  // ---- streams, events
  Result<StreamHandle> CreateStream() const;
  void DestroyStream(StreamHandle stream) const;
  Status WaitForStream(StreamHandle stream) const;
  Result<bool> IsCapturing(StreamHandle stream) const;
  Result<EventHandle> CreateEvent(bool timing) const;
  void DestroyEvent(EventHandle event) const;
  Status RecordEvent(EventHandle event, StreamHandle stream) const;
  Result<bool> IsDone(EventHandle event) const;
  Status WaitForEvent(EventHandle event) const;  // The calling thread waits.
  // Between two timing events that are done.
  Result<double> MillisecondsBetween(EventHandle start, EventHandle end) const;

  // ---- graphs, for tests and benchmarks
  Status BeginCapture(StreamHandle stream) const;
  // The graph captured since, ready to be launched.
  Result<GraphExecHandle> EndCapture(StreamHandle stream) const;
  Status LaunchGraph(GraphExecHandle graph, StreamHandle stream) const;
  void DestroyGraph(GraphExecHandle graph) const;

 private:
  class Current;
  class Relaxed;
  struct SpecOrder {
    bool operator()(const KernelSpec& a, const KernelSpec& b) const;
  };

  Gpu(const Driver& driver, Compiler& compiler, int ordinal)
      : driver_(driver), compiler_(compiler), ordinal_(ordinal) {}
  Status Init();
  Status ReadSpec();
  Status LoadKernel(const Cubin& cubin, Kernel& kernel) const;

  const Driver& driver_;
  Compiler& compiler_;
  int ordinal_;
  DeviceHandle device_ = 0;
  ContextHandle context_ = nullptr;
  std::string product_;
  DeviceSpec spec_;

  std::mutex kernels_mutex_;
  std::map<KernelSpec, std::unique_ptr<Kernel>, SpecOrder> kernels_;
};

}  // namespace kvilt::cuda
