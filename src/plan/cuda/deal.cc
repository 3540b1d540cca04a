#include "src/plan/cuda/deal.h"

#include <algorithm>
#include <functional>

namespace kvilt::plan::cuda {
namespace {

// Sinks a new entry from the heap's top: half the work of a pop and a push.
void ReplaceEarliest(std::pair<double, int> entry, std::vector<std::pair<double, int>>& heap) {
  std::size_t at = 0;
  for (std::size_t child = 1; child < heap.size(); child = 2 * at + 1) {
    if (child + 1 < heap.size() && heap[child + 1] < heap[child]) ++child;
    if (entry <= heap[child]) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = entry;
}

}  // namespace

double Deal(int grid, int alike, CudaScratch& scratch) {
  auto& order = scratch.order;
  const auto costlier = [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  };
  if (!std::is_sorted(order.begin(), order.end(), costlier)) {
    std::sort(order.begin(), order.end(), costlier);
  }
  auto& heap = scratch.heap;  // (free at, slot), earliest first; ties by slot.
  heap.clear();
  double makespan = 0;
  for (const auto& [cost, first] : order) {
    for (int i = first; i < first + alike; ++i) {
      auto slot = static_cast<int>(heap.size());
      double end = cost;
      if (slot < grid) {
        heap.emplace_back(end, slot);
        std::push_heap(heap.begin(), heap.end(), std::greater<>());
      } else {
        slot = heap.front().second;
        end += heap.front().first;
        ReplaceEarliest({end, slot}, heap);
      }
      scratch.trial[static_cast<std::size_t>(i)].slot = slot;
      makespan = std::max(makespan, end);
    }
  }
  return makespan;
}

}  // namespace kvilt::plan::cuda
