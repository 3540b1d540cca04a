#include <fmt/format.h>

#include <cstdlib>

#include "kvilt/device.h"
#include "src/api/host_memory.h"

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

Result<Buffer> Buffer::Allocate(const Device&, std::int64_t bytes) {
  const Result<std::byte*> memory = api::AllocateHost(bytes);
  if (!memory.ok()) return memory.status();
  Buffer buffer;
  buffer.data_.reset(*memory);
  buffer.size_bytes_ = bytes;
  return buffer;
}

void Buffer::Release::operator()(std::byte* p) const { api::FreeHost(p); }

}  // namespace kvilt
