// What the operating system says about this machine.
#pragma once

#include <cstdint>

namespace kvilt::core {

// Threads that this process may run on at once (its CPU affinity counts); at least 1.
int HardwareThreads();

// Bytes of the second-level cache of the first core; 0 when the system does not say.
std::int64_t L2Bytes();

}  // namespace kvilt::core
