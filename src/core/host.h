// What the operating system says about this machine.
#pragma once

#include <cstdint>

namespace kvilt::core {

// Threads that this process may run on at once (its CPU affinity counts); at least 1.
int HardwareThreads();

// Bytes of the second-level cache of the first core; 0 when the system does not say.
std::int64_t L2Bytes();

// Bytes of memory that programs can have without swapping, caches of files counted in; 0 when the
// system does not say.
std::int64_t AvailableMemoryBytes();

// Bytes of the largest level-3 cache that the first core may use; 0 when there is none or the
// system does not say. The kernel's figure before the C library's, which on some machines counts
// the caches of all sockets or of a guest's host.
std::int64_t L3Bytes();

}  // namespace kvilt::core
