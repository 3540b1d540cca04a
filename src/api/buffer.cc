#include <fmt/format.h>

#include <cstdlib>
#include <cstring>

#include "kvilt/device.h"
#include "src/api/check_stream.h"
#include "src/api/device_impl.h"
#include "src/api/host_memory.h"
#include "src/core/check.h"

namespace kvilt {
namespace api {
namespace {

constexpr std::int64_t kAlignment = 256;
// More than any machine of today addresses: the allocator is not even asked.
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 48;

}  // namespace

Result<std::byte*> AllocateHost(std::int64_t bytes) {
  if (bytes < 0) return Status::Invalid("bytes", fmt::format("{}; accepted: at least 0", bytes));
  if (bytes == 0) return static_cast<std::byte*>(nullptr);
  void* memory = nullptr;
  if (bytes <= kMaxBytes) {
    const std::int64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    memory = std::aligned_alloc(kAlignment, static_cast<std::size_t>(rounded));
  }
  if (memory == nullptr) {
    return Status::Exhausted("bytes",
                             fmt::format("{} bytes of host memory are not to be had", bytes));
  }
  return static_cast<std::byte*>(memory);
}

void FreeHost(void* memory) { std::free(memory); }

}  // namespace api

namespace {

Status CheckBytes(std::int64_t bytes) {
  if (bytes >= 0) return {};
  return Status::Invalid("bytes", fmt::format("{}; accepted: at least 0", bytes));
}

cuda::StreamHandle Handle(Stream stream) { return static_cast<cuda::StreamHandle>(stream.handle); }
cuda::DevicePointer Pointer(const void* p) { return reinterpret_cast<cuda::DevicePointer>(p); }

}  // namespace

Status CopyToDevice(const Device& device, void* to, const void* from, std::int64_t bytes,
                    Stream stream) {
  KVILT_RETURN_IF_ERROR(api::CheckStream(device, stream));
  KVILT_RETURN_IF_ERROR(CheckBytes(bytes));
  if (bytes == 0) return {};
  if (device.impl()->on_gpu()) {
    return device.impl()->gpu->CopyToDevice(Pointer(to), from, bytes, Handle(stream));
  }
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
  return {};
}

Status CopyToHost(const Device& device, void* to, const void* from, std::int64_t bytes,
                  Stream stream) {
  KVILT_RETURN_IF_ERROR(api::CheckStream(device, stream));
  KVILT_RETURN_IF_ERROR(CheckBytes(bytes));
  if (bytes == 0) return {};
  if (device.impl()->on_gpu()) {
    return device.impl()->gpu->CopyToHost(to, Pointer(from), bytes, Handle(stream));
  }
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
  return {};
}

Status Synchronize(const Device& device, Stream stream) {
  KVILT_RETURN_IF_ERROR(api::CheckStream(device, stream));
  return device.impl()->on_gpu() ? device.impl()->gpu->WaitForStream(Handle(stream)) : Status();
}

Result<Buffer> Buffer::Allocate(const Device& device, std::int64_t bytes) {
  if (device.impl()->on_gpu() && bytes > 0) {
    const std::shared_ptr<cuda::Gpu>& gpu = device.impl()->gpu;
    const Result<cuda::DevicePointer> memory = gpu->Alloc(bytes);
    if (!memory.ok()) return memory.status();
    Buffer buffer;
    buffer.data_ = {cuda::AsPointer(*memory), Release{gpu}};
    buffer.size_bytes_ = bytes;
    return buffer;
  }
  const Result<std::byte*> memory = api::AllocateHost(bytes);
  if (!memory.ok()) return memory.status();
  Buffer buffer;
  buffer.data_.reset(*memory);
  buffer.size_bytes_ = bytes;
  return buffer;
}

void Buffer::Release::operator()(std::byte* p) const {
  if (owner == nullptr) return api::FreeHost(p);
  static_cast<cuda::Gpu*>(owner.get())->Free(reinterpret_cast<cuda::DevicePointer>(p));
}

}  // namespace kvilt
