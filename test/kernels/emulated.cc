#include "test/kernels/emulated.h"

#include <fmt/format.h>

#include <cstring>

#include "src/api/bind.h"
#include "src/api/host_tables.h"
#include "src/api/rope.h"
#include "src/emulator/emulator.h"
#include "src/kernels/merge.cuh"
#include "src/plan/plan_data.h"
#include "test/kernels/emulated_tiles.h"

namespace kvilt::test {

std::vector<EmulatedTile>& EmulatedTiles() {
  static std::vector<EmulatedTile> tiles;
  return tiles;
}

namespace {

// A tile that serves the launch: same formats, dims and parts, no fewer rows, no wider copies.
EmulatedTile* Find(const contract::TileShape& wanted, std::uint64_t seed) {
  std::vector<EmulatedTile*> found;
  for (EmulatedTile& each : EmulatedTiles()) {
    const contract::TileShape& tile = each.tile;
    if (tile.k_format == wanted.k_format && tile.v_format == wanted.v_format &&
        tile.head_dim_qk == wanted.head_dim_qk && tile.head_dim_vo == wanted.head_dim_vo &&
        tile.q_parts >= wanted.q_parts && tile.k_parts == wanted.k_parts &&
        tile.q_rows >= wanted.q_rows && tile.copy_bytes <= wanted.copy_bytes) {
      found.push_back(&each);
    }
  }
  return found.empty() ? nullptr : found[seed % found.size()];
}

}  // namespace

Status RunEmulated(core::ProblemData& data, const AttentionRequest& request, PlanOptions options,
                   const DeviceSpec& spec, std::uint64_t seed, Plan* plan_out, unsigned* word) {
  Result<Plan> plan = MakePlan(request, spec, options);
  if (!plan.ok()) return plan.status();
  if (plan_out != nullptr) *plan_out = *plan;
  const plan::PlanDataView view = plan::ViewPlanData(plan->data);
  std::vector<contract::SegmentParams> segments(request.segments.size());
  std::vector<double> frequencies;
  if (request.rope) frequencies = api::RopeFrequencies(*request.rope, plan->head_dim_qk);
  contract::AttentionArgs args;
  args.params = api::BindRequest(request, plan->head_dim_qk, segments, frequencies);
  if (segments.size() > contract::kMaxSegments) return Status::Unsupported("segments", "too many");
  std::copy(segments.begin(), segments.end(), args.segments);
  api::HostTables tables;
  tables.Build(request, frequencies);
  tables.PointInto(tables.bytes().data(), args);
  args.plan = reinterpret_cast<const contract::u8*>(plan->data.data());
  data.PoisonOutputs();
  args.workspace = reinterpret_cast<contract::u8*>(data.Workspace(plan->workspace_bytes).data());
  contract::u32 error = 0;
  args.error = &error;
  for (std::size_t l = 0; l < view.launches.size(); ++l) {
    EmulatedTile* tile = Find(view.launches[l].tile, seed + l);
    if (tile == nullptr) return Status::Unsupported("tile", plan->launches[l].tile.name);
    args.launch = static_cast<int>(l);
    ++tile->runs;
    tile->run(args, view.launches[l].grid, seed);
  }
  emulator::Launch({3, contract::kMergeThreads, 0, seed}, [&] { kernels::Merge(args); });
  if (word != nullptr) *word = error;
  return {};
}

}  // namespace kvilt::test
