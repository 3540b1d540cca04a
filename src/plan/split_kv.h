// CPU: decides how each key run is cut: into splits along its keys, and into groups of KV heads.
#pragma once

#include <cstdint>
#include <vector>

#include "kvilt/attention.h"
#include "src/plan/key_runs.h"

namespace kvilt::plan {

struct SplitContext {
  const RequestGeometry& geometry;
  const std::vector<PlannedBlock>& blocks;
  const KeyCosts& costs;
  const ModelDims& dims;
  const DeviceSpec& spec;
  const PlanOptions& options;
};

// Query rows of all partials that the runs' splits need (saturated).
std::int64_t PartialRows(const std::vector<PlannedBlock>& blocks, const KeyRuns& runs);
// What so many partial rows of all query heads, or so many vectors, take. False when the bytes
// leave 64 bits.
bool PartialBytes(std::int64_t rows, const ModelDims& dims, std::int64_t& bytes);
bool VectorBytes(std::int64_t vectors, const ModelDims& dims, std::int64_t& bytes);

// kAuto: near-equal items, kItemsPerSlot per slot, no split shorter than kMinSplitKeys, none at
// all on one slot, within options.workspace_limit_bytes; false when even unsplit runs (those of
// cascades) exceed the limit.
// kFixed: cuts at absolute multiples of n and at segment borders; kOff: none.
// Sets splits (kAuto: at most so many, see CutsOf) and head_groups of each run.
bool ChooseSplits(const SplitContext& context, KeyRuns& runs);

// The borders of a run's splits: keys.begin, the cuts, keys.end, strictly increasing. kAuto cuts
// at multiples of kTileKeys, which may make fewer splits than were chosen.
void CutsOf(const SplitContext& context, const KeyRun& run, std::vector<std::int64_t>& cuts);

}  // namespace kvilt::plan
