// Runs plans for a GPU through the emulator: the kernels of src/kernels, compiled for the host with
// a fixed set of tiles.
#pragma once

#include <string>

#include "kvilt/attention.h"
#include "src/contract/tile_shape.h"
#include "src/core/problem_data.h"

namespace kvilt::test {

// Plans `request` for `spec`, puts an emulated tile in place of each launch's, which serves the
// same rows and formats with the same lists, and runs attention and merge. Outputs are poisoned
// first. `word`: the device error word afterwards. Errors: those of planning; kUnsupported, where
// no emulated tile serves a launch.
Status RunEmulated(core::ProblemData& data, const AttentionRequest& request, PlanOptions options,
                   const DeviceSpec& spec, std::uint64_t seed = 1, Plan* plan = nullptr,
                   unsigned* word = nullptr);

}  // namespace kvilt::test
