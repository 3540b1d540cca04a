// The asynchronous copies of one thread: done as late as the contract of CopyWait allows.
#pragma once

#include <cstddef>
#include <vector>

#include "src/contract/types.h"

namespace kvilt::emulator {

class PendingCopies {
 public:
  // Until it is done the target holds 0xFF bytes. A null `source` means zeros.
  void Issue(void* target, const void* source, contract::i32 bytes);
  void Commit() { group_ends_.push_back(copies_.size()); }
  // Does all but the latest `pending` groups.
  void Wait(contract::i32 pending);
  // Copies that no wait has covered.
  std::size_t size() const { return copies_.size(); }
  void clear();

 private:
  struct Copy {
    void* target;
    const void* source;
    contract::i32 bytes;
  };
  std::vector<Copy> copies_;
  std::vector<std::size_t> group_ends_;  // In copies_, oldest first.
};

}  // namespace kvilt::emulator
