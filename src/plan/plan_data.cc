#include "src/plan/plan_data.h"

#include <cstring>

#include "src/core/check.h"

namespace kvilt::plan {
namespace {

using contract::i64;

constexpr i64 kAlign = 16;

template <class T>
i64 Reserve(i64& cursor, const std::vector<T>& list) {
  cursor = contract::RoundUp(cursor, kAlign);
  const i64 offset = cursor;
  cursor += static_cast<i64>(list.size() * sizeof(T));
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

std::vector<std::byte> EncodePlanData(const PlanLists& lists) {
  contract::PlanHeader header = lists.header;
  header.blocks = static_cast<int>(lists.blocks.size());
  header.spans = static_cast<int>(lists.spans.size());
  header.items = static_cast<int>(lists.items.size());
  header.merges = static_cast<int>(lists.merges.size());
  i64 cursor = sizeof(header);
  header.requests_offset = Reserve(cursor, lists.requests);
  header.segment_begin_offset = Reserve(cursor, lists.segment_begins);
  header.blocks_offset = Reserve(cursor, lists.blocks);
  header.spans_offset = Reserve(cursor, lists.spans);
  header.items_offset = Reserve(cursor, lists.items);
  header.merges_offset = Reserve(cursor, lists.merges);
  header.total_bytes = contract::RoundUp(cursor, kAlign);

  std::vector<std::byte> out(static_cast<std::size_t>(header.total_bytes));
  std::memcpy(out.data(), &header, sizeof(header));
  Copy(out, header.requests_offset, lists.requests);
  Copy(out, header.segment_begin_offset, lists.segment_begins);
  Copy(out, header.blocks_offset, lists.blocks);
  Copy(out, header.spans_offset, lists.spans);
  Copy(out, header.items_offset, lists.items);
  Copy(out, header.merges_offset, lists.merges);
  return out;
}

PlanDataView ViewPlanData(std::span<const std::byte> data) {
  KVILT_CHECK(data.size() >= sizeof(contract::PlanHeader));
  PlanDataView view;
  view.header = reinterpret_cast<const contract::PlanHeader*>(data.data());
  const contract::PlanHeader& h = *view.header;
  KVILT_CHECK(h.magic == contract::kPlanMagic && h.version == contract::kPlanVersion);
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
