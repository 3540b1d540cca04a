// Plan::data, decoded. The one header of src/plan that backends include.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kvilt/status.h"
#include "src/contract/work_item.h"

namespace kvilt::plan {

// Borrowed views into one plan-data buffer.
struct PlanDataView {
  const contract::PlanHeader* header = nullptr;
  std::span<const contract::LaunchInfo> launches;
  std::span<const int> slot_begins;  // See LaunchInfo.
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
  contract::PartialLayout partials() const { return {header->partials, header->head_dim_vo}; }
};

// The lists before they are laid out.
struct PlanLists {
  contract::PlanHeader header;  // Counts and offsets are filled by Encode.
  std::vector<contract::LaunchInfo> launches;
  std::vector<int> slot_begins;
  std::vector<contract::RequestInfo> requests;
  std::vector<contract::i64> segment_begins;
  std::vector<contract::RowBlock> blocks;
  std::vector<contract::WorkSpan> spans;
  std::vector<contract::WorkItem> items;
  std::vector<contract::MergeItem> merges;

  void clear() {
    header = {};
    launches.clear();
    slot_begins.clear();
    requests.clear();
    segment_begins.clear();
    blocks.clear();
    spans.clear();
    items.clear();
    merges.clear();
  }
};

// Entries that each list has room for.
struct PlanCounts {
  contract::i64 launches = 0;
  contract::i64 slots = 0;
  contract::i64 batch = 0;
  contract::i64 segments = 0;
  contract::i64 blocks = 0;
  contract::i64 spans = 0;
  contract::i64 items = 0;
  contract::i64 merges = 0;

  friend bool operator==(const PlanCounts&, const PlanCounts&) = default;
};
PlanCounts CountsOf(const PlanLists& lists);

// Where the lists of one buffer are written.
struct PlanDataWriter {
  contract::LaunchInfo* launches = nullptr;
  int* slot_begins = nullptr;
  contract::RequestInfo* requests = nullptr;
  contract::i64* segment_begins = nullptr;
  contract::RowBlock* blocks = nullptr;
  contract::WorkSpan* spans = nullptr;
  contract::WorkItem* items = nullptr;
  contract::MergeItem* merges = nullptr;
};

// The offsets of a buffer with this room, and its size. REQUIRES: the bytes fit 63 bits.
contract::PlanHeader LayOut(const PlanCounts& room);
inline contract::i64 PlanDataBytes(const PlanCounts& room) { return LayOut(room).total_bytes; }

// Lays out `data`, resized to the room's bytes: the header with counts and offsets, zeros where
// counts leave room. The caller writes the lists in place, each whole: they may be most of a
// megabyte, so GPU plans make no copy first. REQUIRES: counts within room.
PlanDataWriter OpenPlanData(contract::PlanHeader header, const PlanCounts& counts,
                            const PlanCounts& room, std::vector<std::byte>& data);

// Writes the lists into `data`, resized to the room's bytes; every byte is defined.
// REQUIRES: no list is longer than its room.
void EncodePlanData(const PlanLists& lists, const PlanCounts& room, std::vector<std::byte>& data);
std::vector<std::byte> EncodePlanData(const PlanLists& lists);

// Refuses data that EncodePlanData cannot have made, as it reached us: cut, of another version,
// with counts, offsets or indices that lead out of it. The field is plan.data.
Status CheckPlanData(std::span<const std::byte> data);

// REQUIRES: `data` came from EncodePlanData (magic and version are checked; a mismatch aborts).
PlanDataView ViewPlanData(std::span<const std::byte> data);

}  // namespace kvilt::plan
