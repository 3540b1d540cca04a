// Pinned host memory from which small tables are copied to a device again and again: a buffer is
// used anew once the copy from it is done, so no call waits for a stream.
//
//   idle -- Upload: fill, copy, record --> busy until its event is done --> idle
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "kvilt/status.h"
#include "src/cuda/gpu.h"

namespace kvilt::cuda {

// Thread-safe. Destroying it waits for the copies in flight.
class PinnedRing {
 public:
  // Waits only when this many uploads are in flight.
  static constexpr int kDefaultBuffers = 8;
  explicit PinnedRing(std::shared_ptr<Gpu> gpu, int max_buffers = kDefaultBuffers);
  ~PinnedRing();
  PinnedRing(const PinnedRing&) = delete;
  PinnedRing& operator=(const PinnedRing&) = delete;

  // Copies the parts one after another to `to`, in the stream's order; they may change as soon as
  // the call returns. Allocates nothing once the buffers have grown.
  // Errors: kFailedPrecondition (the stream is capturing: a graph would replay today's contents
  // forever), kResourceExhausted, kRuntime.
  Status Upload(DevicePointer to, std::span<const std::span<const std::byte>> parts,
                StreamHandle stream);

 private:
  struct Buffer {
    std::byte* data = nullptr;
    std::int64_t size_bytes = 0;
    EventHandle event = nullptr;  // Recorded behind the latest copy.
    bool taken = false;           // By a call that is filling it.
    bool recorded = false;
  };

  // A buffer that no copy reads, of at least `bytes`, marked taken.
  Result<Buffer*> Acquire(std::int64_t bytes);
  Result<Buffer*> FindIdle(std::unique_lock<std::mutex>& lock);
  Result<bool> IsIdle(Buffer& buffer) const;
  Status Grow(Buffer& buffer, std::int64_t bytes) const;
  Status CopyFrom(Buffer& buffer, DevicePointer to, std::int64_t bytes, StreamHandle stream);

  std::shared_ptr<Gpu> gpu_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Buffer>> buffers_;  // Least recently used first.
  std::size_t max_buffers_;
};

}  // namespace kvilt::cuda
