#include "src/emulator/emulator.h"

#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "src/emulator/block.h"
#include "src/emulator/fail.h"

namespace kvilt::emulator {

void LaunchErased(const LaunchShape& shape, void (*body)(void*), void* context) {
  if (shape.grid < 1) Fail("a grid of %d blocks", shape.grid);
  if (shape.threads < kLanes || shape.threads > 1024 || shape.threads % kLanes != 0) {
    Fail("a block of %d threads", shape.threads);
  }
  if (place != nullptr) Fail("a launch from within a launch");
  thread_local StackPool stacks;
  std::vector<i32> order(static_cast<std::size_t>(shape.grid));
  std::iota(order.begin(), order.end(), 0);
  std::minstd_rand random(static_cast<std::uint32_t>(shape.seed));
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  Block block(shape, body, context, stacks);
  for (const i32 index : order) block.Run(index, shape.seed);
}

}  // namespace kvilt::emulator
