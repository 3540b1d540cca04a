// Runs a kernel's text (src/kernels) on the CPU.
#pragma once

#include <cstdint>
#include <type_traits>

namespace kvilt::emulator {

struct LaunchShape {
  int grid = 1;                 // Blocks.
  int threads = 32;             // Of a block: whole warps, at most 1024.
  std::int64_t smem_bytes = 0;  // Of a block's dynamic shared memory.
  std::uint64_t seed = 1;  // Draws the order of blocks, of warps and of lanes between barriers.
};

void LaunchErased(const LaunchShape& shape, void (*body)(void*), void* context);

// Calls body() once for each thread of each block, as a kernel's __global__ function would be
// called, and returns when all have ended. Blocks run one after another.
//
// What a GPU leaves open is drawn from the seed, or made as bad as can be: shared memory starts as
// 0xFF bytes in each block, also the target of a CopyAsync from its issue until the CopyWait that
// covers it. What a GPU would do wrongly without a word aborts with a text: lanes of a warp at
// different warp-wide functions, a barrier that waits for ever, addresses outside shared memory or
// not aligned, a thread that ends with copies under way. A store outside shared memory is found by
// AddressSanitizer, or by a check of the bytes after it when the block has ended.
//
// What it does not find: a loop that waits for another thread without a function of the machine,
// races between lanes that the drawn order happens to hide, more registers than a GPU has.
//
// body() must not throw, and has 128 KiB of stack. May be called from several OS threads at once;
// not from within a body. Not under ThreadSanitizer, which takes fibers for one thread.
template <class Body>
void Launch(const LaunchShape& shape, Body&& body) {
  using Plain = std::remove_reference_t<Body>;
  LaunchErased(
      shape, [](void* context) { (*static_cast<Plain*>(context))(); },
      const_cast<void*>(static_cast<const void*>(&body)));
}

}  // namespace kvilt::emulator
