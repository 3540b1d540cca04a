// Whole pieces to blocks of the grid: the costliest first, to the block that is free first.
#pragma once

#include "src/plan/cuda/cuda_plan.h"

namespace kvilt::plan::cuda {

// Sorts scratch.order and gives each piece of scratch.trial a slot. Each entry of the order stands
// for `alike` pieces of the same cost. Returns the makespan; scratch.heap has the busy slots.
double Deal(int grid, int alike, CudaScratch& scratch);

}  // namespace kvilt::plan::cuda
