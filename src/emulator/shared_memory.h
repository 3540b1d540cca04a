// The shared memory of a block: exactly the bytes asked, from an address that 1024 divides.
#pragma once

#include "src/contract/types.h"

namespace kvilt::emulator {

class SharedMemoryBytes {
 public:
  explicit SharedMemoryBytes(contract::i64 bytes);
  SharedMemoryBytes(const SharedMemoryBytes&) = delete;
  SharedMemoryBytes& operator=(const SharedMemoryBytes&) = delete;
  ~SharedMemoryBytes();

  contract::u8* data() const { return data_; }
  contract::i64 size() const { return bytes_; }

  // 0xFF everywhere: NaN in each float format, and far beyond any index.
  void Poison();
  // Without AddressSanitizer a few bytes follow that nobody may have written to.
  void CheckEnd() const;

 private:
  contract::u8* data_ = nullptr;
  contract::i64 bytes_ = 0;
};

}  // namespace kvilt::emulator
