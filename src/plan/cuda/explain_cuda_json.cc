#include "src/plan/cuda/explain_cuda_json.h"

#include <nlohmann/json.hpp>

#include "src/plan/cuda/weigh.h"

namespace kvilt::plan::cuda {

void AddLaunchJson(const Plan& plan, std::size_t launch, nlohmann::ordered_json& json) {
  const Launch& l = plan.launches[launch];
  json["k_dtype"] = l.mixed_dtypes ? "mixed" : Name(l.k_dtype);
  json["v_dtype"] = l.mixed_dtypes ? "mixed" : Name(l.v_dtype);
  json["cascade"] = l.cascade;
  json["blocks"] = l.blocks;
  json["busy_blocks"] = l.busy_blocks;
  json["kv_bytes"] = l.kv_bytes;
  json["estimated_us"] = l.estimated_us;
  json["merge_us"] = l.merge_us;
  json["roofline_us"] = l.roofline_us;
  json["roofline_share"] = l.estimated_us > 0 ? l.roofline_us / l.estimated_us : 0;
  const TileEstimate estimate = EstimateItems(plan, launch);
  json["resources"] = {{"memory_us", estimate.memory_us},
                       {"issue_us", estimate.issue_us},
                       {"mma_us", estimate.mma_us},
                       {"copy_us", estimate.copy_us}};
  json["refused"] = nlohmann::ordered_json::array();
  for (const PassedOver& tile : WeighAgain(plan, launch)) {
    json["refused"].push_back({{"tile", tile.name}, {"reason", tile.text}});
  }
}

}  // namespace kvilt::plan::cuda
