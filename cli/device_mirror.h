// A copy of a problem's memory on a GPU: every block with its guard zones, and a request that
// points into the copy.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kvilt/attention.h"
#include "src/core/problem_data.h"

namespace kvilt::cli {

// Memory of a device that is filled, run on and read back. Grows to the largest problem; one call
// at a time.
class DeviceMirror {
 public:
  explicit DeviceMirror(const Device& device) : device_(device) {}

  // Copies every block to the device, as it is now, and waits.
  Status Upload(const std::vector<std::span<std::byte>>& blocks);
  // Copies every block back and waits. REQUIRES: Upload of the same blocks.
  Status Download() const;
  // `request` as one of the device, to plan with: alignments are those of the copy to come.
  AttentionRequest Placed(const AttentionRequest& request) const;
  // `request` with its pointers into the copy; with `tables` also its page ids. Other index arrays
  // stay on the host.
  AttentionRequest Moved(const AttentionRequest& request, bool tables) const;
  // Where `bytes` lie in the copy.
  std::span<std::byte> Moved(std::span<std::byte> bytes) const;

 private:
  struct Block {
    std::span<std::byte> host;
    std::byte* device = nullptr;
  };
  void* Move(const void* pointer) const;

  const Device device_;
  Buffer memory_;
  std::vector<Block> blocks_;
};

}  // namespace kvilt::cli
