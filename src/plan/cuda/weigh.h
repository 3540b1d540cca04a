// The tiles of a launch weighed again, from the plan alone: for explaining it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kvilt/plan.h"
#include "src/plan/cuda/tiles.h"

namespace kvilt::plan::cuda {

// A candidate that the launch did not get.
struct PassedOver {
  std::string name;
  TileReason reason = TileReason::kFeasible;
  double us = 0;              // By the model; feasible ones only.
  std::int64_t short_by = 0;  // need - limit; refused ones only.
  std::string text;           // Why, with numbers.
};

// "registers", "shared memory", ...: what the tiles of a reason lack.
std::string_view ReasonName(TileReason reason);

// Every candidate but the chosen one, each tile once: feasible ones, the fastest first, then the
// refused ones by reason, the nearest miss first. REQUIRES: a CUDA plan, launch < launches.
std::vector<PassedOver> WeighAgain(const Plan& plan, std::size_t launch);

// The model for the items that the launch has. Its `us` and `merge_us` are not those of the
// schedule; Launch::estimated_us and merge_us are.
TileEstimate EstimateItems(const Plan& plan, std::size_t launch);

// The tile of a launch as kernels get it.
const contract::TileShape& TileOf(const Plan& plan, std::size_t launch);

}  // namespace kvilt::plan::cuda
