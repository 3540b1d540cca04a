// What the machine is, for `kvilt info`, for measurements and for the report.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvilt/device.h"

namespace kvilt::cli {

// Zero or empty where the system does not say.
struct Machine {
  std::string cpu;     // "AMD EPYC 9654 96-Core Processor"
  std::string system;  // "Linux 6.1.0 x86_64"
  int threads = 0;     // Hardware threads that this process may use.
  std::int64_t memory_bytes = 0;
  std::int64_t l1d_bytes = 0;  // Per core.
  std::int64_t l2_bytes = 0;   // Per core.
  std::int64_t l3_bytes = 0;   // As the system reports it: often shared with other tenants.
};
Machine ThisMachine();

// The SIMD targets that this machine has, narrowest first: those that Device::Open accepts.
std::vector<SimdTarget> PresentTargets();

// "2026-11-30 17:21 UTC"
std::string UtcDate();

}  // namespace kvilt::cli
