// The launches of a GPU plan as JSON. docs/planner.md has the schema.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "kvilt/plan.h"

namespace kvilt::plan::cuda {

// What `launches[launch]` has beside the keys that the CPU has too.
void AddLaunchJson(const Plan& plan, std::size_t launch, nlohmann::ordered_json& json);

}  // namespace kvilt::plan::cuda
