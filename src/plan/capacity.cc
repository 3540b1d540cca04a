#include "src/plan/capacity.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/contract/types.h"
#include "src/core/check.h"
#include "src/plan/row_blocks.h"

namespace kvilt::plan {
namespace {

using contract::CeilDiv;

Status CheckCount(std::int64_t value, std::int64_t least, std::int64_t most,
                  std::string_view name) {
  if (value >= least && value <= most) return {};
  return Status::Invalid(fmt::format("capacity.{}", name),
                         fmt::format("{}, expected {}..{}", value, least, most));
}

Status SameModel(std::int64_t found, std::int64_t capacity, std::string_view name) {
  if (found == capacity) return {};
  return Status::Invalid(fmt::format("options.capacity.{}", name),
                         fmt::format("{}, expected {} as in the request", capacity, found));
}

Status NoMore(std::string field, std::string_view what, std::int64_t found, std::int64_t room) {
  if (found <= room) return {};
  return Status::Exhausted(std::move(field),
                           fmt::format("{} {}, the plan's capacity is {}", found, what, room));
}

}  // namespace

Status CheckCapacity(const PlanCapacity& c, DeviceKind device) {
  KVILT_RETURN_IF_ERROR(CheckCount(c.q_heads, 1, kMaxHeads, "q_heads"));
  KVILT_RETURN_IF_ERROR(CheckCount(c.kv_heads, 1, kMaxHeads, "kv_heads"));
  if (c.q_heads % c.kv_heads != 0) {
    return Status::Invalid("capacity.q_heads", fmt::format("{}, expected a multiple of kv_heads {}",
                                                           c.q_heads, c.kv_heads));
  }
  KVILT_RETURN_IF_ERROR(
      CheckHeadDim(DType::kF16, c.head_dim_qk, device, {"capacity", "head_dim_qk"}));
  KVILT_RETURN_IF_ERROR(
      CheckHeadDim(DType::kF16, c.head_dim_vo, device, {"capacity", "head_dim_vo"}));
  KVILT_RETURN_IF_ERROR(CheckCount(c.requests, 0, kMaxListEntries, "requests"));
  KVILT_RETURN_IF_ERROR(CheckCount(c.query_rows, 0, kMaxLength, "query_rows"));
  KVILT_RETURN_IF_ERROR(CheckCount(c.kv_len, 0, kMaxLength, "kv_len"));
  KVILT_RETURN_IF_ERROR(CheckCount(c.segments, 1, 1 << 20, "segments"));
  return CheckCount(c.shared_segments, 0, c.segments, "shared_segments");
}

Status CheckWithin(const RequestGeometry& geometry, const PlanCapacity& c) {
  KVILT_RETURN_IF_ERROR(SameModel(geometry.q_heads, c.q_heads, "q_heads"));
  KVILT_RETURN_IF_ERROR(SameModel(geometry.kv_heads, c.kv_heads, "kv_heads"));
  KVILT_RETURN_IF_ERROR(SameModel(geometry.head_dim_qk, c.head_dim_qk, "head_dim_qk"));
  KVILT_RETURN_IF_ERROR(SameModel(geometry.head_dim_vo, c.head_dim_vo, "head_dim_vo"));
  KVILT_RETURN_IF_ERROR(NoMore("q_indptr", "requests", geometry.batch, c.requests));
  KVILT_RETURN_IF_ERROR(NoMore("q_indptr", "query rows", geometry.q_begin.back(), c.query_rows));
  KVILT_RETURN_IF_ERROR(NoMore("segments", "segments",
                               static_cast<std::int64_t>(geometry.segments.size()), c.segments));
  for (std::int64_t r = 0; r < geometry.batch; ++r) {
    if (geometry.kv_len(r) > c.kv_len) {
      return NoMore(fmt::format("request {}", r), "keys", geometry.kv_len(r), c.kv_len);
    }
  }
  return {};
}

PlanCounts RoomFor(const PlanCapacity& c, const PlanOptions& options,
                   std::span<const LaunchRoom> launches, std::int64_t merge_vectors) {
  PlanCounts room;
  room.batch = c.requests;
  room.segments = c.segments;
  const std::int64_t rows = c.query_rows;
  // A request of n rows makes at most 1 + (n - 1) / rows_per_block blocks.
  std::int64_t per_block = rows;
  std::int64_t row_blocks = 1;
  for (const LaunchRoom& launch : launches) {
    per_block = std::min(per_block, launch.rows_per_block);
    row_blocks = std::max(row_blocks, launch.row_blocks);
  }
  const std::int64_t blocks =
      rows == 0 ? 0 : std::min(rows, c.requests + rows / std::max<std::int64_t>(1, per_block));
  // Its keys fall into runs: shared segments, stretches of one pair of dtypes, and what is between.
  const std::int64_t runs = blocks * (c.segments + 2 * c.shared_segments);
  const std::int64_t cuts_of_run = options.split == SplitMode::kFixed
                                       ? CeilDiv(c.kv_len, options.fixed_split_rows) + c.segments
                                       : 1;
  std::int64_t cuts = 0;
  std::int64_t units = 1;
  std::int64_t unit_spans = 1;
  std::int64_t members = 1;
  for (const LaunchRoom& launch : launches) {
    cuts += launch.cuts;
    units = std::max(units, launch.units);
    unit_spans = std::max(unit_spans, launch.unit_spans);
    members = std::max(members, launch.members);
  }
  // Each run belongs to one launch; each of its members adds its row blocks to every item.
  room.items = runs * units * cuts_of_run + cuts;
  room.spans = runs * cuts_of_run * row_blocks + cuts * unit_spans * members;
  room.blocks = blocks * row_blocks;
  room.merges = rows * c.q_heads / merge_vectors + room.blocks;
  return room;
}

}  // namespace kvilt::plan
