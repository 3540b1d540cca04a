// Memory that grows and is then kept, so that a warm run allocates nothing.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

#include "src/contract/types.h"

namespace kvilt::cpu {

class AlignedBuffer {
 public:
  static constexpr std::size_t kAlignment = 64;

  // At least `bytes` bytes, contents undefined (older contents are lost when it grows).
  std::byte* Reserve(contract::i64 bytes) {
    if (bytes > size_) {
      data_.reset();
      size_ = 0;
      data_.reset(static_cast<std::byte*>(
          ::operator new (static_cast<std::size_t>(bytes), std::align_val_t{kAlignment})));
      size_ = bytes;
    }
    return data_.get();
  }
  std::byte* data() const { return data_.get(); }

 private:
  struct Release {
    void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{kAlignment}); }
  };
  std::unique_ptr<std::byte, Release> data_;
  contract::i64 size_ = 0;
};

// Hands out consecutive arrays of a buffer. With a null base it only counts, so the same code
// sizes and places.
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}

  template <class T>
  T* Take(contract::i64 count) {
    T* const result = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += contract::RoundUp<contract::i64>(count * static_cast<contract::i64>(sizeof(T)), 64);
    return result;
  }
  contract::i64 used() const { return used_; }

 private:
  std::byte* base_;
  contract::i64 used_ = 0;
};

}  // namespace kvilt::cpu
