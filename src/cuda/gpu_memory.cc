// Memory of a Gpu, and copies.
#include <fmt/format.h>

#include <algorithm>

#include "src/core/check.h"
#include "src/cuda/gpu_current.h"

namespace kvilt::cuda {
namespace {

// The driver refuses to allocate nothing.
std::size_t AtLeastOne(std::int64_t bytes) {
  return static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
}

Status AllocStatus(const Driver& driver, DriverResult result, const char* call,
                   std::int64_t bytes) {
  if (result == kDriverOutOfMemory) {
    return Status::Exhausted(call, fmt::format("no {} bytes left", bytes));
  }
  return DriverStatus(driver, result, call);
}

}  // namespace

Result<DevicePointer> Gpu::Alloc(std::int64_t bytes) const {
  const Relaxed relaxed(*this);
  KVILT_RETURN_IF_ERROR(relaxed.status());
  DevicePointer pointer = 0;
  KVILT_RETURN_IF_ERROR(AllocStatus(driver_, driver_.MemAlloc(&pointer, AtLeastOne(bytes)),
                                    driver_symbol::kMemAlloc, bytes));
  return pointer;
}

void Gpu::Free(DevicePointer pointer) const {
  const Relaxed relaxed(*this);
  if (pointer != 0 && relaxed.status().ok()) driver_.MemFree(pointer);
}

Result<std::byte*> Gpu::AllocPinned(std::int64_t bytes) const {
  const Relaxed relaxed(*this);
  KVILT_RETURN_IF_ERROR(relaxed.status());
  void* pointer = nullptr;
  KVILT_RETURN_IF_ERROR(
      AllocStatus(driver_, driver_.MemHostAlloc(&pointer, AtLeastOne(bytes), kHostAllocPortable),
                  driver_symbol::kMemHostAlloc, bytes));
  return static_cast<std::byte*>(pointer);
}

void Gpu::FreePinned(std::byte* pointer) const {
  const Relaxed relaxed(*this);
  if (pointer != nullptr && relaxed.status().ok()) driver_.MemFreeHost(pointer);
}

Status Gpu::CopyToDevice(DevicePointer to, const void* from, std::int64_t bytes,
                         StreamHandle stream) const {
  if (bytes == 0) return Status::Ok();
  const Current current(*this);
  KVILT_RETURN_IF_ERROR(current.status());
  KVILT_DRIVER_CALL(driver_, MemcpyHtoDAsync, to, from, static_cast<std::size_t>(bytes), stream);
  return Status::Ok();
}

Status Gpu::CopyToHost(void* to, DevicePointer from, std::int64_t bytes,
                       StreamHandle stream) const {
  if (bytes == 0) return Status::Ok();
  const Current current(*this);
  KVILT_RETURN_IF_ERROR(current.status());
  KVILT_DRIVER_CALL(driver_, MemcpyDtoHAsync, to, from, static_cast<std::size_t>(bytes), stream);
  return Status::Ok();
}

Status Gpu::CopyOnDevice(DevicePointer to, DevicePointer from, std::int64_t bytes,
                         StreamHandle stream) const {
  if (bytes == 0) return Status::Ok();
  const Current current(*this);
  KVILT_RETURN_IF_ERROR(current.status());
  KVILT_DRIVER_CALL(driver_, MemcpyDtoDAsync, to, from, static_cast<std::size_t>(bytes), stream);
  return Status::Ok();
}

Status Gpu::Fill(DevicePointer to, std::uint8_t value, std::int64_t bytes,
                 StreamHandle stream) const {
  if (bytes == 0) return Status::Ok();
  const Current current(*this);
  KVILT_RETURN_IF_ERROR(current.status());
  KVILT_DRIVER_CALL(driver_, MemsetD8Async, to, value, static_cast<std::size_t>(bytes), stream);
  return Status::Ok();
}

Result<PointerInfo> Gpu::Describe(const void* pointer) const {
  const Relaxed relaxed(*this);
  KVILT_RETURN_IF_ERROR(relaxed.status());
  const auto address = static_cast<DevicePointer>(reinterpret_cast<std::uintptr_t>(pointer));
  PointerInfo info;
  unsigned type = 0;
  const DriverResult result = driver_.PointerGetAttribute(&type, kPointerMemoryType, address);
  if (result == kDriverInvalidValue) return info;  // Memory that the driver does not know.
  KVILT_RETURN_IF_ERROR(DriverStatus(driver_, result, driver_symbol::kPointerGetAttribute));
  unsigned managed = 0;
  KVILT_DRIVER_CALL(driver_, PointerGetAttribute, &managed, kPointerIsManaged, address);
  KVILT_DRIVER_CALL(driver_, PointerGetAttribute, &info.ordinal, kPointerDeviceOrdinal, address);
  info.on_device = type == kMemoryTypeDevice || managed != 0;
  return info;
}

Result<Gpu::MemoryInfo> Gpu::Memory() const {
  const Relaxed relaxed(*this);
  KVILT_RETURN_IF_ERROR(relaxed.status());
  std::size_t free = 0;
  std::size_t total = 0;
  KVILT_DRIVER_CALL(driver_, MemGetInfo, &free, &total);
  return MemoryInfo{static_cast<std::int64_t>(free), static_cast<std::int64_t>(total)};
}

}  // namespace kvilt::cuda
