#include "src/emulator/shared_memory.h"

#include <cstdlib>
#include <cstring>

#include "src/emulator/fail.h"
#include "src/emulator/fiber.h"

namespace kvilt::emulator {

using contract::i64;
using contract::u8;

namespace {

constexpr std::size_t kAlignment = 1024;
#ifdef KVILT_EMULATOR_ASAN
constexpr i64 kEndBytes = 0;  // The sanitizer has its own.
#else
constexpr i64 kEndBytes = 256;
#endif
constexpr u8 kEndByte = 0xA5;

}  // namespace

SharedMemoryBytes::SharedMemoryBytes(i64 bytes) : bytes_(bytes) {
  if (bytes < 0) Fail("%lld bytes of shared memory", bytes);
  void* data = nullptr;
  if (posix_memalign(&data, kAlignment, static_cast<std::size_t>(bytes + kEndBytes)) != 0) {
    Fail("no memory for %lld bytes of shared memory", bytes);
  }
  data_ = static_cast<u8*>(data);
}

SharedMemoryBytes::~SharedMemoryBytes() { std::free(data_); }

void SharedMemoryBytes::Poison() {
  std::memset(data_, 0xFF, static_cast<std::size_t>(bytes_));
  std::memset(data_ + bytes_, kEndByte, static_cast<std::size_t>(kEndBytes));
}

void SharedMemoryBytes::CheckEnd() const {
  for (i64 i = 0; i < kEndBytes; ++i) {
    if (data_[bytes_ + i] != kEndByte) {
      Fail("a store %lld bytes behind the %lld bytes of shared memory", i, bytes_);
    }
  }
}

}  // namespace kvilt::emulator
