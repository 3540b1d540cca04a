#include "src/core/host.h"

#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <thread>

namespace kvilt::core {
namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
File Open(const std::string& path) { return {std::fopen(path.c_str(), "r"), std::fclose}; }

// What the kernel says of the first core's cache of a level: "1024K".
std::int64_t KernelCacheBytes(int level) {
  for (int index = 0; index < 8; ++index) {
    const std::string folder =
        "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    const File level_file = Open(folder + "level");
    const File size_file = Open(folder + "size");
    int found = 0;
    long kib = 0;
    char unit = 0;
    if (level_file == nullptr || size_file == nullptr) continue;
    if (std::fscanf(level_file.get(), "%d", &found) != 1 || found != level) continue;
    if (std::fscanf(size_file.get(), "%ld%c", &kib, &unit) != 2) continue;
    const bool plausible = kib > 0 && kib <= (1L << 30);
    if (plausible && (unit == 'K' || unit == 'M')) {
      return static_cast<std::int64_t>(kib) * (unit == 'K' ? 1024 : 1024 * 1024);
    }
  }
  return 0;
}

}  // namespace

int HardwareThreads() {
  const unsigned threads = std::thread::hardware_concurrency();
  return threads == 0 ? 1 : static_cast<int>(threads);
}

std::int64_t L2Bytes() {
#ifdef _SC_LEVEL2_CACHE_SIZE
  if (const long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE); bytes > 0) return bytes;
#endif
  // Where the C library does not know (most aarch64 systems), the kernel does.
  return KernelCacheBytes(2);
}

std::int64_t L3Bytes() {
  if (const std::int64_t bytes = KernelCacheBytes(3); bytes > 0) return bytes;
#ifdef _SC_LEVEL3_CACHE_SIZE
  if (const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE); bytes > 0) return bytes;
#endif
  return 0;
}

std::int64_t AvailableMemoryBytes() {
  const File file = Open("/proc/meminfo");
  char line[128];
  long long kib = 0;
  while (file != nullptr && std::fgets(line, sizeof(line), file.get()) != nullptr) {
    if (std::sscanf(line, "MemAvailable: %lld kB", &kib) == 1) return kib * 1024;
  }
  return 0;
}

}  // namespace kvilt::core
