// The memory-read ceiling: how fast this machine, now, can merely read as many bytes.
#pragma once

#include <cstdint>

namespace kvilt::cli {

// GB/s of `threads` threads that stream through a buffer of `bytes` bytes (each its own contiguous
// share, prefetched) again and again for about `seconds`; the best of several passes, since noise
// only slows a read down. A buffer that fits a cache gives that cache's ceiling. 0 when the buffer
// cannot be allocated.
double ReadCeilingGbPerS(std::int64_t bytes, int threads, double seconds);

}  // namespace kvilt::cli
