// GPU planning, from the checked request to lists.
#include "src/plan/cuda/cuda_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "src/core/check.h"
#include "src/plan/cuda/cost.h"
#include "src/plan/cuda/describe.h"
#include "src/plan/cuda/numbering.h"
#include "src/plan/planner.h"
#include "src/plan/work_list.h"

namespace kvilt::plan::cuda {
namespace {

class CudaPlanner {
 public:
  CudaPlanner(const AttentionRequest& request, const ModelDims& dims, const Plan& plan,
              PlanScratch& scratch)
      : plan_(plan),
        scratch_(scratch),
        context_{request, scratch.geometry, dims, plan.spec, scratch.options} {}

  Status Run(bool keep_tiles) {
    CudaScratch& cuda = scratch_.cuda;
    if (keep_tiles) {
      KVILT_RETURN_IF_ERROR(RestoreLaunches(context_, ViewPlanData(plan_.data), cuda));
    } else {
      KVILT_RETURN_IF_ERROR(ChooseLaunches(context_, false, cuda));
      cuda.cascade_rows = ChooseCascadeLaunches(context_, cuda);
    }
    Result<bool> fits = Cut(cuda.cascade_rows);
    if (!fits.ok()) return fits.status();
    if (!*fits) KVILT_RETURN_IF_ERROR(GiveWay(keep_tiles));

    std::int64_t bytes = 0;
    const bool countable = VectorBytes(cuda.vectors, context_.dims, bytes);
    KVILT_RETURN_IF_ERROR(CheckFixedWorkspace(bytes, countable, context_.options));
    KVILT_RETURN_IF_ERROR(
        CountLists(context_, scratch_.blocks, scratch_.runs, cuda, scratch_.split));
    scratch_.header = {};
    FillHeader(context_.geometry, scratch_.header);
    scratch_.header.partials = cuda.vectors;
    FillRoom();
    DescribeLaunches(context_, scratch_.runs, scratch_.costs, cuda, plan_.launches,
                     scratch_.launches, scratch_.split);
    return {};
  }

 private:
  // Rows, runs and pieces for the launches chosen; false when partials exceed the workspace.
  Result<bool> Cut(std::int64_t cascade_rows) {
    CudaScratch& cuda = scratch_.cuda;
    KVILT_RETURN_IF_ERROR(
        MakeRowBlocks(context_.request, context_.geometry, cuda.tiling, scratch_.blocks));
    RunOptions options;
    options.cascade = cascade_rows > 0;
    options.cascade_rows = cascade_rows;
    options.costs = false;
    const bool any = cuda.launches.front().formats == kAnyFormats;
    if (!any && cuda.pairs.size() > 1) options.segment_formats = cuda.segment_formats;
    MakeKeyRuns(context_.request, context_.geometry, scratch_.blocks.blocks, scratch_.costs,
                context_.dims, options, scratch_.runs);
    FindLaunches(any);
    return Partition(context_, scratch_.blocks, scratch_.runs, cuda);
  }

  // The launch of each run. Runs of one class and format mostly follow each other.
  void FindLaunches(bool any) {
    std::vector<int>& found = scratch_.cuda.run_launch;
    found.resize(scratch_.runs.runs.size());
    bool last_cascade = false;
    int last_class = -1;
    int last_formats = 0;
    int launch = 0;
    for (std::size_t r = 0; r < found.size(); ++r) {
      const KeyRun& run = scratch_.runs.runs[r];
      const bool cascade = run.member_count > 1;
      const auto block = static_cast<std::size_t>(
          scratch_.runs.members[static_cast<std::size_t>(run.member_begin)].block);
      const int row_class = cascade ? RowClassOf(run.rows * context_.dims.group())
                                    : scratch_.blocks.blocks[block].row_class;
      if (row_class != last_class || cascade != last_cascade || run.formats != last_formats) {
        launch = LaunchOf(cascade, row_class, run.formats, any);
      }
      last_cascade = cascade;
      last_class = row_class;
      last_formats = run.formats;
      found[r] = launch;
    }
  }

  int LaunchOf(bool cascade, int row_class, int formats, bool any) const {
    const CudaScratch& cuda = scratch_.cuda;
    for (std::size_t l = 0; l < cuda.launch_count; ++l) {
      const LaunchDraft& launch = cuda.launches[l];
      if (launch.cascade == cascade && launch.row_class == row_class &&
          (any || launch.formats == formats)) {
        return static_cast<int>(l);
      }
    }
    KVILT_CHECK(false);
    return 0;
  }

  // The workspace does not even hold what cascades and several formats need by themselves.
  Status GiveWay(bool keep_tiles) {
    CudaScratch& cuda = scratch_.cuda;
    if (cuda.cascade_rows > 0) {
      cuda.cascade_rows = 0;
      while (!keep_tiles && cuda.launches[cuda.launch_count - 1].cascade) --cuda.launch_count;
      Result<bool> fits = Cut(0);
      if (!fits.ok()) return fits.status();
      if (*fits) return {};
    }
    if (keep_tiles) {
      return Status::Exhausted(
          "options.workspace_limit_bytes",
          fmt::format("{} bytes: segments of several dtypes need partials, and an update keeps the "
                      "tiles; plan again",
                      context_.options.workspace_limit_bytes));
    }
    KVILT_RETURN_IF_ERROR(ChooseLaunches(context_, true, cuda));
    Result<bool> fits = Cut(0);
    if (!fits.ok()) return fits.status();
    KVILT_CHECK(*fits);
    return {};
  }

  void FillRoom() {
    CudaScratch& cuda = scratch_.cuda;
    scratch_.room.clear();
    for (std::size_t l = 0; l < cuda.launch_count; ++l) {
      const LaunchDraft& launch = cuda.launches[l];
      const RowBlockShape shape = cuda.shapes[static_cast<std::size_t>(launch.row_class)];
      LaunchRoom& room = scratch_.room.emplace_back();
      room.rows_per_block = cuda.tiling.RowsOf(launch.row_class);
      room.units = launch.units(context_.dims.kv_heads);
      room.unit_spans = launch.tile.kv_heads / shape.heads;
      room.cuts = launch.grid;
      room.row_blocks = context_.dims.kv_heads / shape.heads * shape.slices;
      room.members = launch.cascade ? cuda.cascade_rows : 1;
      if (launch.cascade) room.rows_per_block = room.members;
    }
  }

  const Plan& plan_;
  PlanScratch& scratch_;
  const CudaContext context_;
};

}  // namespace

Status PlanCuda(const AttentionRequest& request, const ModelDims& dims, const Plan& plan,
                bool keep_tiles, PlanScratch& scratch) {
  return CudaPlanner(request, dims, plan, scratch).Run(keep_tiles);
}

}  // namespace kvilt::plan::cuda
