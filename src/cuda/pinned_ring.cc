#include "src/cuda/pinned_ring.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <thread>

#include "src/core/check.h"

namespace kvilt::cuda {
namespace {

constexpr std::int64_t kLeastBytes = 4096;

}  // namespace

PinnedRing::PinnedRing(std::shared_ptr<Gpu> gpu, int max_buffers)
    : gpu_(std::move(gpu)), max_buffers_(static_cast<std::size_t>(max_buffers)) {
  KVILT_CHECK(max_buffers >= 1);
  buffers_.reserve(max_buffers_);
}

PinnedRing::~PinnedRing() {
  for (const auto& buffer : buffers_) {
    if (buffer->recorded) (void)gpu_->WaitForEvent(buffer->event);
    gpu_->DestroyEvent(buffer->event);
    gpu_->FreePinned(buffer->data);
  }
}

Status PinnedRing::Upload(DevicePointer to, std::span<const std::span<const std::byte>> parts,
                          StreamHandle stream) {
  Result<bool> capturing = gpu_->IsCapturing(stream);
  if (!capturing.ok()) return capturing.status();
  if (*capturing) {
    return Status::Precondition("stream",
                                "is being captured: a graph would copy the same contents at every "
                                "replay; update the plan before the capture or between replays");
  }
  std::int64_t bytes = 0;
  for (const auto& part : parts) bytes += static_cast<std::int64_t>(part.size());
  if (bytes == 0) return Status::Ok();
  Result<Buffer*> buffer = Acquire(bytes);
  if (!buffer.ok()) return buffer.status();
  std::byte* at = (*buffer)->data;
  for (const auto& part : parts) {
    if (!part.empty()) std::memcpy(at, part.data(), part.size());
    at += part.size();
  }
  return CopyFrom(**buffer, to, bytes, stream);
}

Status PinnedRing::CopyFrom(Buffer& buffer, DevicePointer to, std::int64_t bytes,
                            StreamHandle stream) {
  Status status = gpu_->CopyToDevice(to, buffer.data, bytes, stream);
  bool recorded = false;
  if (status.ok()) {
    status = gpu_->RecordEvent(buffer.event, stream);
    recorded = status.ok();
    // A copy is in flight that no event stands behind: it must end before the buffer is used again.
    if (!recorded) (void)gpu_->WaitForStream(stream);
  }
  const std::lock_guard lock(mutex_);
  buffer.recorded = recorded;
  buffer.taken = false;
  const auto at = std::ranges::find(buffers_, &buffer, &std::unique_ptr<Buffer>::get);
  std::rotate(at, at + 1, buffers_.end());
  return status;
}

Result<PinnedRing::Buffer*> PinnedRing::Acquire(std::int64_t bytes) {
  std::unique_lock lock(mutex_);
  Result<Buffer*> buffer = FindIdle(lock);
  if (!buffer.ok()) return buffer;
  (*buffer)->taken = true;
  lock.unlock();
  if (const Status grown = Grow(**buffer, bytes); !grown.ok()) {
    lock.lock();
    (*buffer)->taken = false;
    return grown;
  }
  return buffer;
}

Result<bool> PinnedRing::IsIdle(Buffer& buffer) const {
  if (buffer.taken) return false;
  if (!buffer.recorded) return true;
  return gpu_->IsDone(buffer.event);
}

Result<PinnedRing::Buffer*> PinnedRing::FindIdle(std::unique_lock<std::mutex>& lock) {
  for (;;) {
    for (const auto& buffer : buffers_) {
      Result<bool> idle = IsIdle(*buffer);
      if (!idle.ok()) return idle.status();
      if (*idle) return buffer.get();
    }
    if (buffers_.size() < max_buffers_) {
      return buffers_.emplace_back(std::make_unique<Buffer>()).get();
    }
    // All are busy: wait for the oldest copy, or, while other threads fill all of them, for those.
    const auto oldest = std::ranges::find(buffers_, false, [](const auto& b) { return b->taken; });
    EventHandle event = oldest != buffers_.end() ? (*oldest)->event : nullptr;
    lock.unlock();
    Status waited;
    if (event != nullptr) {
      waited = gpu_->WaitForEvent(event);
    } else {
      std::this_thread::yield();
    }
    lock.lock();
    KVILT_RETURN_IF_ERROR(std::move(waited));
  }
}

Status PinnedRing::Grow(Buffer& buffer, std::int64_t bytes) const {
  if (buffer.event == nullptr) {
    Result<EventHandle> event = gpu_->CreateEvent(/*timing=*/false);
    if (!event.ok()) return event.status();
    buffer.event = *event;
  }
  if (buffer.size_bytes >= bytes) return Status::Ok();
  const auto size =
      std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(bytes, kLeastBytes)));
  Result<std::byte*> data = gpu_->AllocPinned(static_cast<std::int64_t>(size));
  if (!data.ok()) return data.status();
  gpu_->FreePinned(buffer.data);
  buffer.data = *data;
  buffer.size_bytes = static_cast<std::int64_t>(size);
  return Status::Ok();
}

}  // namespace kvilt::cuda
