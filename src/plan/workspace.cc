// The workspace of every plan within a capacity, without making one.
//
// kAuto, see split_kv.cc. Let C be the cost of all runs and T = C / (kItemsPerSlot * slots). A run
// of cost c with g head groups gets n = ceil(ceil(c / T) / g) splits, so n > 1 only if c > g T, and
// then n < 2 c / (g T). Summed over runs, n g < 2 C / T = 2 kItemsPerSlot * slots. A run of r rows
// takes n r partial rows, so all split runs together take less than
// 2 kItemsPerSlot * slots * max over r of (r / g(r)).
// On top come the rows of runs that are not split themselves but belong to a block of several
// runs, which only shared segments make: at most 2 per shared segment and one more.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "kvilt/attention.h"
#include "src/contract/types.h"
#include "src/core/check.h"
#include "src/plan/capacity.h"
#include "src/plan/cost_model.h"
#include "src/plan/cuda/cost.h"
#include "src/plan/paths.h"
#include "src/plan/row_blocks.h"
#include "src/plan/split_kv.h"
#include "src/plan/tile_select.h"
#include "src/plan/validate.h"

namespace kvilt {
namespace plan {
namespace {

// max over the rows of a run of (rows / head groups) * slots * 2 kItemsPerSlot.
std::int64_t AutoSplitRows(const ModelDims& dims, const DeviceSpec& spec, std::int64_t most_rows) {
  const std::int64_t full = std::min(RowsPerBlock(dims, spec), most_rows);
  double most = 0;
  for (std::int64_t rows = 1; rows <= full; ++rows) {
    int groups = HeadGroups(rows, dims, spec);
    if (rows * dims.group() >= kComputeBoundRows) groups = dims.kv_heads;
    most = std::max(most, static_cast<double>(rows) / groups);
  }
  return static_cast<std::int64_t>(2 * kItemsPerSlot * spec.slots * most) + full;
}

std::int64_t AutoRows(const PlanCapacity& c, const ModelDims& dims, const DeviceSpec& spec,
                      bool cascade) {
  const std::int64_t longest =
      spec.slots == 1 ? 1 : std::max<std::int64_t>(1, c.kv_len / kMinSplitKeys);
  const std::int64_t runs = cascade ? 2 * c.shared_segments + 1 : 1;
  if (longest == 1 && runs == 1) return 0;
  const std::int64_t unsplit = runs == 1 ? 0 : c.query_rows * runs;
  if (longest == 1) return unsplit;
  // Nor more than every row in as many splits as its keys allow.
  std::int64_t every = 0;
  const std::int64_t most = AutoSplitRows(dims, spec, c.query_rows) + unsplit;
  return Multiply(c.query_rows, longest + runs, every) ? std::min(most, every) : most;
}

// GPU, kAuto: the partition keeps partials within kPartialsPerSm vectors for each SM, and those
// that several runs of one row make by themselves.
bool CudaAutoVectors(const PlanCapacity& c, const DeviceSpec& spec, const PlanOptions& options,
                     std::int64_t& vectors) {
  std::int64_t rows = 0;
  if (!Multiply(c.query_rows, c.q_heads, rows)) return false;
  const bool cascade = options.allow_cascade && c.shared_segments > 0;
  const std::int64_t runs = c.segments + (cascade ? 2 * c.shared_segments : 0);
  std::int64_t inherent = 0;
  if (runs > 1 && !Multiply(rows, runs, inherent)) return false;
  const std::int64_t longest =
      std::max<std::int64_t>(1, contract::CeilDiv<std::int64_t>(c.kv_len, cuda::kMinSplitKeys));
  std::int64_t every = 0;
  if (!Multiply(rows, longest + runs, every)) every = std::numeric_limits<std::int64_t>::max();
  vectors = std::min(every, spec.slots * cuda::kPartialsPerSm + inherent);
  return true;
}

}  // namespace

bool CapacityBytes(const PlanCapacity& capacity, const DeviceSpec& spec, const PlanOptions& options,
                   std::int64_t& bytes) {
  const ModelDims dims{capacity.q_heads, capacity.kv_heads, capacity.head_dim_qk,
                       capacity.head_dim_vo};
  std::int64_t vectors = 0;
  std::int64_t rows = 0;
  bool countable = true;
  if (options.split == SplitMode::kAuto && spec.kind == DeviceKind::kCuda) {
    countable = CudaAutoVectors(capacity, spec, options, vectors);
  } else if (options.split == SplitMode::kAuto) {
    rows = AutoRows(capacity, dims, spec, options.allow_cascade && capacity.shared_segments > 0);
    countable = Multiply(rows, dims.q_heads, vectors);
  } else if (options.split == SplitMode::kFixed) {
    // A window may begin and end inside a split, and each border between segments adds a cut.
    const std::int64_t splits =
        contract::CeilDiv(capacity.kv_len, options.fixed_split_rows) + capacity.segments - 1;
    countable = splits <= 1 || (Multiply(capacity.query_rows, splits, rows) &&
                                Multiply(rows, dims.q_heads, vectors));
  }
  if (!countable || !VectorBytes(vectors, dims, bytes)) return false;
  if (options.split == SplitMode::kAuto && options.workspace_limit_bytes >= 0) {
    bytes = std::min(bytes, options.workspace_limit_bytes);
  }
  return true;
}

}  // namespace plan

Result<std::int64_t> WorkspaceBytes(const PlanCapacity& capacity, const DeviceSpec& spec,
                                    const PlanOptions& options) {
  KVILT_RETURN_IF_ERROR(plan::CheckSpec(spec));
  KVILT_RETURN_IF_ERROR(plan::CheckPlanOptions(options));
  KVILT_RETURN_IF_ERROR(plan::CheckCapacity(capacity, spec.kind));
  std::int64_t bytes = 0;
  if (!plan::CapacityBytes(capacity, spec, options, bytes)) {
    return Status::Exhausted("capacity", "the workspace overflows 64 bits");
  }
  return bytes;
}

}  // namespace kvilt
