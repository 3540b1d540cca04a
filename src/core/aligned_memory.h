// Owned memory at a wanted alignment, and index arrays of either width.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "kvilt/tensor.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace kvilt::core {

// Frees what AlignedMemory holds.
struct ReleaseMemory {
  std::size_t mapped_bytes = 0;  // 0 = from aligned_alloc.
  void operator()(std::byte* p) const {
#if defined(__linux__)
    if (mapped_bytes > 0) {
      munmap(p, mapped_bytes);
      return;
    }
#endif
    std::free(p);
  }
};

// Movable. data() is aligned to 256 bytes, to 2 MiB (huge pages where the system has them) from
// 4 MiB on. Null when the allocation failed.
class AlignedMemory {
 public:
  AlignedMemory() = default;
  explicit AlignedMemory(std::size_t size_bytes) : size_bytes_(size_bytes) {
    const std::size_t alignment = size_bytes >= kHugeFrom ? kHugePage : 256;
    const std::size_t padded = (size_bytes + alignment - 1) / alignment * alignment;
    data_.reset(
        static_cast<std::byte*>(std::aligned_alloc(alignment, padded + (padded == 0) * alignment)));
#if defined(__linux__)
    if (data_ && alignment == kHugePage) madvise(data_.get(), padded, MADV_HUGEPAGE);
#endif
  }
  // Addresses without memory behind them: reading or writing faults, Fill does nothing. For
  // operands that are planned for and never run. Where the system has no such thing, memory.
  static AlignedMemory AddressesOnly(std::size_t size_bytes) {
#if defined(__linux__)
    AlignedMemory memory;
    void* mapped = mmap(nullptr, size_bytes + 1, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return memory;
    memory.size_bytes_ = size_bytes;
    memory.data_ = {static_cast<std::byte*>(mapped), ReleaseMemory{size_bytes + 1}};
    return memory;
#else
    return AlignedMemory(size_bytes);
#endif
  }

  std::byte* data() const { return data_.get(); }
  std::size_t size_bytes() const { return size_bytes_; }
  void Fill(std::uint8_t byte) {
    if (size_bytes_ > 0 && data_.get_deleter().mapped_bytes == 0) {
      std::memset(data_.get(), byte, size_bytes_);
    }
  }

 private:
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;
  static constexpr std::size_t kHugeFrom = std::size_t{4} << 20;
  std::unique_ptr<std::byte, ReleaseMemory> data_;
  std::size_t size_bytes_ = 0;
};

// 64-bit values, lent as int32 or int64.
class IndexMemory {
 public:
  IndexMemory() = default;
  IndexMemory(std::vector<std::int64_t> values, DType width) : wide_(std::move(values)) {
    wide_.reserve(1);  // An array without entries is still an array: its address is not null.
    narrow_.reserve(1);
    if (width == DType::kI32) {
      for (std::int64_t value : wide_) narrow_.push_back(static_cast<std::int32_t>(value));
    }
    width_ = width;
  }
  std::span<const std::int64_t> values() const { return wide_; }
  // Those that view() lends.
  std::span<std::byte> bytes() {
    return width_ == DType::kI32 ? std::as_writable_bytes(std::span(narrow_))
                                 : std::as_writable_bytes(std::span(wide_));
  }
  // Borrows; moving this object keeps it valid.
  IndexArray view() const {
    if (width_ == DType::kI32) return std::span<const std::int32_t>(narrow_);
    return std::span<const std::int64_t>(wide_);
  }

 private:
  std::vector<std::int64_t> wide_;
  std::vector<std::int32_t> narrow_;
  DType width_ = DType::kI64;
};

}  // namespace kvilt::core
