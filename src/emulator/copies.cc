#include "src/emulator/copies.h"

#include <cstring>

namespace kvilt::emulator {

using contract::i32;

void PendingCopies::Issue(void* target, const void* source, i32 bytes) {
  std::memset(target, 0xFF, static_cast<std::size_t>(bytes));
  copies_.push_back({target, source, bytes});
}

void PendingCopies::Wait(i32 pending) {
  if (group_ends_.size() <= static_cast<std::size_t>(pending)) return;
  const std::size_t groups = group_ends_.size() - static_cast<std::size_t>(pending);
  const std::size_t done = group_ends_[groups - 1];
  for (std::size_t i = 0; i < done; ++i) {
    const Copy& copy = copies_[i];
    const auto bytes = static_cast<std::size_t>(copy.bytes);
    if (copy.source == nullptr) {
      std::memset(copy.target, 0, bytes);
    } else {
      std::memcpy(copy.target, copy.source, bytes);
    }
  }
  copies_.erase(copies_.begin(), copies_.begin() + static_cast<std::ptrdiff_t>(done));
  group_ends_.erase(group_ends_.begin(), group_ends_.begin() + static_cast<std::ptrdiff_t>(groups));
  for (std::size_t& end : group_ends_) end -= done;
}

void PendingCopies::clear() {
  copies_.clear();
  group_ends_.clear();
}

}  // namespace kvilt::emulator
