// Plan::data, decoded. The one header of src/plan that backends include.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "src/contract/work_item.h"

namespace kvilt::plan {

// Borrowed views into one plan-data buffer.
struct PlanDataView {
  const contract::PlanHeader* header = nullptr;
  std::span<const contract::RequestInfo> requests;
  std::span<const contract::i64> segment_begins;  // [batch][segments + 1]
  std::span<const contract::RowBlock> blocks;
  std::span<const contract::WorkSpan> spans;
  std::span<const contract::WorkItem> items;
  std::span<const contract::MergeItem> merges;

  // First absolute key of segment s of request r; s == segments gives kv_len.
  contract::i64 segment_begin(contract::i64 r, contract::i64 s) const {
    return segment_begins[static_cast<std::size_t>(r * (header->segments + 1) + s)];
  }
  contract::PartialLayout partials() const {
    return {header->partial_rows, header->q_heads, header->head_dim_vo};
  }
};

// The lists before they are laid out.
struct PlanLists {
  contract::PlanHeader header;  // Counts and offsets are filled by Encode.
  std::vector<contract::RequestInfo> requests;
  std::vector<contract::i64> segment_begins;
  std::vector<contract::RowBlock> blocks;
  std::vector<contract::WorkSpan> spans;
  std::vector<contract::WorkItem> items;
  std::vector<contract::MergeItem> merges;
};

std::vector<std::byte> EncodePlanData(const PlanLists& lists);

// REQUIRES: `data` came from EncodePlanData (magic and version are checked; a mismatch aborts).
PlanDataView ViewPlanData(std::span<const std::byte> data);

}  // namespace kvilt::plan
