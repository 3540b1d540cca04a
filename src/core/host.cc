#include "src/core/host.h"

#include <unistd.h>

#include <cstdio>
#include <memory>
#include <thread>

namespace kvilt::core {

int HardwareThreads() {
  const unsigned threads = std::thread::hardware_concurrency();
  return threads == 0 ? 1 : static_cast<int>(threads);
}

std::int64_t L2Bytes() {
#ifdef _SC_LEVEL2_CACHE_SIZE
  if (const long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE); bytes > 0) return bytes;
#endif
  // Where the C library does not know (most aarch64 systems), the kernel does: "1024K".
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      std::fopen("/sys/devices/system/cpu/cpu0/cache/index2/size", "r"), std::fclose);
  long kib = 0;
  char unit = 0;
  if (file == nullptr || std::fscanf(file.get(), "%ld%c", &kib, &unit) != 2) return 0;
  if (kib <= 0 || kib > (1L << 30) || unit != 'K') return 0;
  return static_cast<std::int64_t>(kib) * 1024;
}

}  // namespace kvilt::core
