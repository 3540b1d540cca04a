// A plan on a GPU: its kernels, its lists in device memory, its error word.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "kvilt/status.h"
#include "src/contract/attention_args.h"
#include "src/cuda/gpu.h"
#include "src/cuda/pinned_ring.h"
#include "src/plan/plan_data.h"

namespace kvilt::cuda {

// The spec of the kernel that runs a tile.
KernelSpec AttentionKernel(const contract::TileShape& tile);
KernelSpec MergeKernel();

// Owned device memory.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  ~DeviceMemory();
  static Result<DeviceMemory> Allocate(std::shared_ptr<Gpu> gpu, std::int64_t bytes);

  DevicePointer pointer() const { return pointer_; }
  std::int64_t size_bytes() const { return size_bytes_; }

 private:
  std::shared_ptr<Gpu> gpu_;
  DevicePointer pointer_ = 0;
  std::int64_t size_bytes_ = 0;
};

// Images of a request's host tables on the device. A run whose tables are those of an image uses
// it; others are copied to an image that no run in flight reads. Images that a captured graph uses
// change through Rewrite alone.
class TableImages {
 public:
  explicit TableImages(const std::shared_ptr<Gpu>& gpu) : gpu_(gpu), ring_(gpu) {}
  ~TableImages();

  struct Image {
    std::vector<std::byte> content;
    std::vector<std::size_t> parts;  // Where its arrays begin.
    DeviceMemory memory;
    StreamHandle stream = nullptr;  // That it was filled on; only runs of that stream use it.
    EventHandle event = nullptr;    // Behind the latest run that reads it.
    bool captured = false;
  };
  // The image with this content, marked as in use until Done. Errors: kFailedPrecondition (the
  // stream is capturing and no image has the content yet: run once before the capture).
  Result<Image*> Get(std::span<const std::byte> content, std::span<const std::size_t> parts,
                     StreamHandle stream, bool capturing);
  Status Done(Image& image, StreamHandle stream, bool capturing);
  // Captured images hold `content` from here on in the stream's order. Errors: kResourceExhausted,
  // where one has no room, or its arrays would move: graphs hold their addresses.
  Status Rewrite(std::span<const std::byte> content, std::span<const std::size_t> parts,
                 StreamHandle stream);
  bool captured() const;

 private:
  Result<Image*> Idle(std::size_t bytes);
  Status Fill(Image& image, std::span<const std::byte> content, std::span<const std::size_t> parts,
              StreamHandle stream);

  std::shared_ptr<Gpu> gpu_;
  PinnedRing ring_;
  std::vector<std::unique_ptr<Image>> images_;
};

// Thread-safe but for Update, which is not to meet a Run.
class PreparedAttention {
 public:
  // Compiles what the plan launches and copies its data. Waits for the copy.
  static Result<std::unique_ptr<PreparedAttention>> Create(const std::shared_ptr<Gpu>& gpu,
                                                           std::span<const std::byte> plan_data);

  // Plan data of the same launches, in the order of the stream. Errors: kResourceExhausted, where a
  // captured graph holds a smaller buffer, or no merge.
  Status Update(std::span<const std::byte> plan_data, StreamHandle stream);
  TableImages& images() { return images_; }
  std::mutex& mutex() { return mutex_; }  // Of images().

  // `args` but for plan, workspace, error and launch. Enqueues every launch and the merge.
  Status Run(contract::AttentionArgs& args, std::byte* workspace, StreamHandle stream) const;

  // Bits of contract::DeviceError since the last call. Waits for the legacy default stream alone:
  // an error of a run on another stream is seen once that stream was waited for.
  Result<contract::u32> TakeError();

 private:
  struct Step {
    const Kernel* kernel = nullptr;
    LaunchShape shape;
  };
  explicit PreparedAttention(const std::shared_ptr<Gpu>& gpu)
      : gpu_(gpu), ring_(gpu), images_(gpu) {}
  Status Init(std::span<const std::byte> plan_data);

  std::shared_ptr<Gpu> gpu_;
  PinnedRing ring_;
  std::mutex mutex_;
  TableImages images_;
  DeviceMemory plan_;
  DeviceMemory error_;
  std::vector<Step> steps_;
  Step merge_;
  bool merges_ = false;  // Whether the plan, or an update of it, may have rows to stitch.
};

}  // namespace kvilt::cuda
