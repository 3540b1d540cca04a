// What a Device handle points to.
#pragma once

#include "kvilt/device.h"
#include "src/cpu/worker_pool.h"

namespace kvilt {

struct Device::Impl {
  // Throws what WorkerPool throws.
  explicit Impl(DeviceSpec device_spec)
      : spec(std::move(device_spec)), simd(spec.simd), pool(spec.slots) {}

  const DeviceSpec spec;
  const DeviceId id;
  const SimdTarget simd;  // The body that runs; this machine has it.
  cpu::WorkerPool pool;   // spec.slots threads.
};

}  // namespace kvilt
