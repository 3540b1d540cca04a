#include "cli/machine.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <ctime>
#include <fstream>

#include "src/core/host.h"
#include "src/core/simd_target.h"

namespace kvilt::cli {
namespace {

std::string CpuName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const bool named = line.rfind("model name", 0) == 0 || line.rfind("Model", 0) == 0;
    const std::size_t colon = line.find(": ");
    if (named && colon != std::string::npos) return line.substr(colon + 2);
  }
  return {};
}

std::int64_t Configured(int name) {
  const long value = sysconf(name);
  return value > 0 ? value : 0;
}

}  // namespace

Machine ThisMachine() {
  Machine machine;
  machine.cpu = CpuName();
  utsname system{};
  if (uname(&system) == 0) {
    machine.system = fmt::format("{} {} {}", system.sysname, system.release, system.machine);
  }
  machine.threads = core::HardwareThreads();
  machine.memory_bytes = Configured(_SC_PHYS_PAGES) * Configured(_SC_PAGESIZE);
#ifdef _SC_LEVEL1_DCACHE_SIZE
  machine.l1d_bytes = Configured(_SC_LEVEL1_DCACHE_SIZE);
  machine.l2_bytes = Configured(_SC_LEVEL2_CACHE_SIZE);
#endif
  machine.l3_bytes = core::L3Bytes();
  return machine;
}

std::vector<SimdTarget> PresentTargets() {
  std::vector<SimdTarget> present;
  DeviceOptions one_thread;
  one_thread.threads = 1;
  for (SimdTarget target : core::kSimdTargets) {
    if (Device::Open("cpu:" + std::string(Name(target)), one_thread).ok()) {
      present.push_back(target);
    }
  }
  return present;
}

std::string UtcDate() {
  return fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr)));
}

}  // namespace kvilt::cli
