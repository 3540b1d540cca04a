// What a Device handle points to.
#pragma once

#include <memory>

#include "kvilt/device.h"
#include "src/cpu/worker_pool.h"
#include "src/cuda/gpu.h"

namespace kvilt {

struct Device::Impl {
  // Throws what WorkerPool throws.
  explicit Impl(DeviceSpec device_spec)
      : spec(std::move(device_spec)),
        simd(spec.simd),
        pool(std::make_unique<cpu::WorkerPool>(spec.slots)) {}
  Impl(DeviceSpec device_spec, std::shared_ptr<cuda::Gpu> opened)
      : spec(std::move(device_spec)),
        id{DeviceKind::kCuda, opened->ordinal()},
        simd(spec.simd),
        gpu(std::move(opened)) {}

  bool on_gpu() const { return gpu != nullptr; }

  const DeviceSpec spec;
  const DeviceId id;
  const SimdTarget simd;  // CPU: the body that runs; this machine has it.
  // One of the two.
  const std::unique_ptr<cpu::WorkerPool> pool;  // spec.slots threads.
  const std::shared_ptr<cuda::Gpu> gpu;
};

}  // namespace kvilt
