// PlanCapacity: whether it makes sense, whether a batch is within, and how much room it needs.
#pragma once

#include <span>

#include "kvilt/attention.h"
#include "src/plan/plan_data.h"
#include "src/plan/tile_select.h"
#include "src/plan/validate.h"

namespace kvilt::plan {

Status CheckCapacity(const PlanCapacity& capacity, DeviceKind device);

// The batch and its model against the capacity. Errors: kInvalidArgument for other heads or dims,
// kResourceExhausted for more than there is room for; both name field, value and what is accepted.
Status CheckWithin(const RequestGeometry& geometry, const PlanCapacity& capacity);

// How much of a plan's lists a launch may make: rows of its blocks, units that each run is cut
// into, and cuts beyond that.
struct LaunchRoom {
  std::int64_t rows_per_block = 1;  // Query rows of a full block.
  std::int64_t units = 1;           // Items that an unsplit run makes: groups of heads, slices.
  std::int64_t unit_spans = 1;      // Row blocks of one unit of one member.
  std::int64_t cuts = 0;            // Items beyond those, of the whole launch.
  std::int64_t row_blocks = 1;      // That a block of rows makes.
  std::int64_t members = 1;         // Blocks of rows that one run may serve.
};

// Room that suffices for every batch within the capacity. `merge_vectors`: of one merge item at
// least.
PlanCounts RoomFor(const PlanCapacity& capacity, const PlanOptions& options,
                   std::span<const LaunchRoom> launches, std::int64_t merge_vectors);

// What WorkspaceBytes answers, for a capacity that was checked. False when the bytes leave 64 bits.
bool CapacityBytes(const PlanCapacity& capacity, const DeviceSpec& spec, const PlanOptions& options,
                   std::int64_t& bytes);

}  // namespace kvilt::plan
