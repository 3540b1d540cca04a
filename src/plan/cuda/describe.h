// GPU launches in the public words of plan.h.
#pragma once

#include <vector>

#include "kvilt/plan.h"
#include "src/plan/cuda/cuda_plan.h"

namespace kvilt::plan::cuda {

std::string_view SmemPartName(contract::SmemPart part);

// Fills `launches` and the balance of `split`. `before`: descriptions of the same tiles, if any,
// whose text is taken over; memory of `launches` is used again.
void DescribeLaunches(const CudaContext& context, const KeyRuns& runs, const KeyCosts& costs,
                      const CudaScratch& scratch, const std::vector<Launch>& before,
                      std::vector<Launch>& launches, SplitSummary& split);

}  // namespace kvilt::plan::cuda
