#include "src/plan/plan_data.h"

#include <cstring>

#include "src/core/check.h"

namespace kvilt::plan {
namespace {

using contract::i64;

constexpr i64 kAlign = 16;

template <class T>
i64 Reserve(i64& cursor, i64 count) {
  cursor = contract::RoundUp(cursor, kAlign);
  const i64 offset = cursor;
  cursor += count * static_cast<i64>(sizeof(T));
  return offset;
}

template <class T>
void Copy(std::vector<std::byte>& out, i64 offset, const std::vector<T>& list) {
  if (!list.empty()) std::memcpy(out.data() + offset, list.data(), list.size() * sizeof(T));
}

template <class T>
std::span<const T> At(std::span<const std::byte> data, i64 offset, i64 count) {
  KVILT_CHECK(offset + count * static_cast<i64>(sizeof(T)) <= static_cast<i64>(data.size()));
  return {reinterpret_cast<const T*>(data.data() + offset), static_cast<std::size_t>(count)};
}

}  // namespace

PlanCounts CountsOf(const PlanLists& lists) {
  PlanCounts counts;
  counts.launches = static_cast<i64>(lists.launches.size());
  counts.slots = static_cast<i64>(lists.slot_begins.size());
  counts.batch = static_cast<i64>(lists.requests.size());
  counts.segments = lists.header.segments;
  counts.blocks = static_cast<i64>(lists.blocks.size());
  counts.spans = static_cast<i64>(lists.spans.size());
  counts.items = static_cast<i64>(lists.items.size());
  counts.merges = static_cast<i64>(lists.merges.size());
  return counts;
}

contract::PlanHeader LayOut(const PlanCounts& room) {
  contract::PlanHeader header;
  i64 cursor = sizeof(header);
  header.launches_offset = Reserve<contract::LaunchInfo>(cursor, room.launches);
  header.slots_offset = Reserve<int>(cursor, room.slots);
  header.requests_offset = Reserve<contract::RequestInfo>(cursor, room.batch);
  header.segment_begin_offset = Reserve<i64>(cursor, room.batch * (room.segments + 1));
  header.blocks_offset = Reserve<contract::RowBlock>(cursor, room.blocks);
  header.spans_offset = Reserve<contract::WorkSpan>(cursor, room.spans);
  header.items_offset = Reserve<contract::WorkItem>(cursor, room.items);
  header.merges_offset = Reserve<contract::MergeItem>(cursor, room.merges);
  header.total_bytes = contract::RoundUp(cursor, kAlign);
  return header;
}

void EncodePlanData(const PlanLists& lists, const PlanCounts& room, std::vector<std::byte>& data) {
  const PlanCounts counts = CountsOf(lists);
  KVILT_CHECK(counts.launches <= room.launches && counts.slots <= room.slots);
  KVILT_CHECK(counts.batch <= room.batch && counts.segments <= room.segments);
  KVILT_CHECK(counts.blocks <= room.blocks && counts.spans <= room.spans);
  KVILT_CHECK(counts.items <= room.items && counts.merges <= room.merges);
  const contract::PlanHeader layout = LayOut(room);
  contract::PlanHeader header = lists.header;
  header.launches = static_cast<int>(counts.launches);
  header.slots = static_cast<int>(counts.slots);
  header.blocks = static_cast<int>(counts.blocks);
  header.spans = static_cast<int>(counts.spans);
  header.items = static_cast<int>(counts.items);
  header.merges = static_cast<int>(counts.merges);
  header.launches_offset = layout.launches_offset;
  header.slots_offset = layout.slots_offset;
  header.requests_offset = layout.requests_offset;
  header.segment_begin_offset = layout.segment_begin_offset;
  header.blocks_offset = layout.blocks_offset;
  header.spans_offset = layout.spans_offset;
  header.items_offset = layout.items_offset;
  header.merges_offset = layout.merges_offset;
  header.total_bytes = layout.total_bytes;

  data.assign(static_cast<std::size_t>(header.total_bytes), std::byte{0});
  std::memcpy(data.data(), &header, sizeof(header));
  Copy(data, header.launches_offset, lists.launches);
  Copy(data, header.slots_offset, lists.slot_begins);
  Copy(data, header.requests_offset, lists.requests);
  Copy(data, header.segment_begin_offset, lists.segment_begins);
  Copy(data, header.blocks_offset, lists.blocks);
  Copy(data, header.spans_offset, lists.spans);
  Copy(data, header.items_offset, lists.items);
  Copy(data, header.merges_offset, lists.merges);
}

std::vector<std::byte> EncodePlanData(const PlanLists& lists) {
  std::vector<std::byte> data;
  EncodePlanData(lists, CountsOf(lists), data);
  return data;
}

PlanDataView ViewPlanData(std::span<const std::byte> data) {
  KVILT_CHECK(data.size() >= sizeof(contract::PlanHeader));
  PlanDataView view;
  view.header = reinterpret_cast<const contract::PlanHeader*>(data.data());
  const contract::PlanHeader& h = *view.header;
  KVILT_CHECK(h.magic == contract::kPlanMagic && h.version == contract::kPlanVersion);
  view.launches = At<contract::LaunchInfo>(data, h.launches_offset, h.launches);
  view.slot_begins = At<int>(data, h.slots_offset, h.slots);
  view.requests = At<contract::RequestInfo>(data, h.requests_offset, h.batch);
  view.segment_begins =
      At<i64>(data, h.segment_begin_offset, static_cast<i64>(h.batch) * (h.segments + 1));
  view.blocks = At<contract::RowBlock>(data, h.blocks_offset, h.blocks);
  view.spans = At<contract::WorkSpan>(data, h.spans_offset, h.spans);
  view.items = At<contract::WorkItem>(data, h.items_offset, h.items);
  view.merges = At<contract::MergeItem>(data, h.merges_offset, h.merges);
  return view;
}

}  // namespace kvilt::plan
