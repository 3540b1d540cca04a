#include "cli/device_mirror.h"

#include <variant>

#include "src/core/check.h"

namespace kvilt::cli {
namespace {

constexpr std::int64_t kAlign = 256;

template <class Visit>
void ForEachTensor(AttentionRequest& request, Visit&& visit) {
  for (TensorView* tensor : {&request.q, &request.q_scales, &request.out, &request.lse,
                             &request.mask_bits, &request.sink}) {
    visit(*tensor);
  }
  if (request.alibi) visit(request.alibi->slopes);
  for (Segment& segment : request.segments) {
    std::visit(
        [&](auto& cache) {
          for (CacheSide* side : {&cache.k, &cache.v}) {
            visit(side->data);
            visit(side->scales);
          }
        },
        segment.kv);
  }
}

}  // namespace

Status DeviceMirror::Upload(const std::vector<std::span<std::byte>>& blocks) {
  // Addresses keep their remainder, since plans depend on alignment.
  std::int64_t bytes = 0;
  std::vector<std::int64_t> offsets;
  for (const std::span<std::byte> block : blocks) {
    const auto rest = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(block.data()) %
                                                static_cast<std::uintptr_t>(kAlign));
    offsets.push_back(bytes + rest);
    bytes += (rest + static_cast<std::int64_t>(block.size()) + kAlign) / kAlign * kAlign;
  }
  if (bytes > memory_.size_bytes()) {
    memory_ = Buffer();
    Result<Buffer> memory = Buffer::Allocate(device_, bytes + bytes / 4);
    if (!memory.ok()) return memory.status();
    memory_ = std::move(memory).value();
  }
  blocks_.clear();
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    std::byte* const to = memory_.data() + offsets[i];
    blocks_.push_back({blocks[i], to});
    KVILT_RETURN_IF_ERROR(
        CopyToDevice(device_, to, blocks[i].data(), static_cast<std::int64_t>(blocks[i].size())));
  }
  return Synchronize(device_);
}

Status DeviceMirror::Download() const {
  for (const Block& block : blocks_) {
    KVILT_RETURN_IF_ERROR(CopyToHost(device_, block.host.data(), block.device,
                                     static_cast<std::int64_t>(block.host.size())));
  }
  return Synchronize(device_);
}

void* DeviceMirror::Move(const void* pointer) const {
  if (pointer == nullptr) return nullptr;
  const auto* at = static_cast<const std::byte*>(pointer);
  for (const Block& block : blocks_) {
    const std::ptrdiff_t offset = at - block.host.data();
    if (offset >= 0 && offset <= static_cast<std::ptrdiff_t>(block.host.size())) {
      return block.device + offset;
    }
  }
  KVILT_CHECK(false);  // Memory() names every block.
  return nullptr;
}

AttentionRequest DeviceMirror::Placed(const AttentionRequest& request) const {
  AttentionRequest placed = request;
  ForEachTensor(placed, [&](TensorView& tensor) { tensor.device = device_.id(); });
  return placed;
}

AttentionRequest DeviceMirror::Moved(const AttentionRequest& request, bool tables) const {
  AttentionRequest moved = Placed(request);
  ForEachTensor(moved, [&](TensorView& tensor) { tensor.data = Move(tensor.data); });
  for (Segment& segment : moved.segments) {
    PagedKv* const paged = std::get_if<PagedKv>(&segment.kv);
    if (!tables || paged == nullptr || paged->table.indices.size == 0) continue;
    paged->table.indices.data = Move(paged->table.indices.data);
    paged->table.indices.device = device_.id();
  }
  return moved;
}

std::span<std::byte> DeviceMirror::Moved(std::span<std::byte> bytes) const {
  return {static_cast<std::byte*>(Move(bytes.data())), bytes.size()};
}

}  // namespace kvilt::cli
