#include "src/plan/plan_data.h"

#include <fmt/format.h>

#include <cstring>
#include <string_view>

#include "src/contract/attention_args.h"
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

// Where `count` entries begin; zeros behind them up to the next list.
template <class T>
T* Open(std::vector<std::byte>& data, i64 offset, i64 count, i64 next_offset) {
  const i64 end = offset + count * static_cast<i64>(sizeof(T));
  std::memset(data.data() + end, 0, static_cast<std::size_t>(next_offset - end));
  return reinterpret_cast<T*>(data.data() + offset);
}

template <class T>
void Copy(T* out, const std::vector<T>& list) {
  if (!list.empty()) std::memcpy(out, list.data(), list.size() * sizeof(T));
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

PlanDataWriter OpenPlanData(contract::PlanHeader header, const PlanCounts& counts,
                            const PlanCounts& room, std::vector<std::byte>& data) {
  KVILT_CHECK(counts.launches <= room.launches && counts.slots <= room.slots);
  KVILT_CHECK(counts.batch <= room.batch && counts.segments <= room.segments);
  KVILT_CHECK(counts.blocks <= room.blocks && counts.spans <= room.spans);
  KVILT_CHECK(counts.items <= room.items && counts.merges <= room.merges);
  const contract::PlanHeader layout = LayOut(room);
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

  data.resize(static_cast<std::size_t>(header.total_bytes));
  std::memcpy(data.data(), &header, sizeof(header));
  const i64 begins = counts.batch * (counts.segments + 1);
  Open<std::byte>(data, sizeof(header), 0, header.launches_offset);
  PlanDataWriter out;
  out.launches = Open<contract::LaunchInfo>(data, header.launches_offset, counts.launches,
                                            header.slots_offset);
  out.slot_begins = Open<int>(data, header.slots_offset, counts.slots, header.requests_offset);
  out.requests = Open<contract::RequestInfo>(data, header.requests_offset, counts.batch,
                                             header.segment_begin_offset);
  out.segment_begins = Open<i64>(data, header.segment_begin_offset, begins, header.blocks_offset);
  out.blocks =
      Open<contract::RowBlock>(data, header.blocks_offset, counts.blocks, header.spans_offset);
  out.spans =
      Open<contract::WorkSpan>(data, header.spans_offset, counts.spans, header.items_offset);
  out.items =
      Open<contract::WorkItem>(data, header.items_offset, counts.items, header.merges_offset);
  out.merges =
      Open<contract::MergeItem>(data, header.merges_offset, counts.merges, header.total_bytes);
  return out;
}

void EncodePlanData(const PlanLists& lists, const PlanCounts& room, std::vector<std::byte>& data) {
  const PlanDataWriter out = OpenPlanData(lists.header, CountsOf(lists), room, data);
  Copy(out.launches, lists.launches);
  Copy(out.slot_begins, lists.slot_begins);
  Copy(out.requests, lists.requests);
  Copy(out.segment_begins, lists.segment_begins);
  Copy(out.blocks, lists.blocks);
  Copy(out.spans, lists.spans);
  Copy(out.items, lists.items);
  Copy(out.merges, lists.merges);
}

std::vector<std::byte> EncodePlanData(const PlanLists& lists) {
  std::vector<std::byte> data;
  EncodePlanData(lists, CountsOf(lists), data);
  return data;
}

namespace {

Status Garbled(std::string_view what) {
  return Status::Invalid(
      "plan.data",
      fmt::format("{}; accepted: what MakePlan of this version made, unchanged", what));
}

// One array of the buffer: `count` entries of `size` bytes at `offset`.
Status CheckArray(std::span<const std::byte> data, i64 offset, i64 count, i64 size,
                  std::string_view name) {
  const i64 bytes = static_cast<i64>(data.size());
  const i64 header = sizeof(contract::PlanHeader);
  if (count >= 0 && offset >= header && offset <= bytes && offset % kAlign == 0 &&
      count <= (bytes - offset) / size) {
    return {};
  }
  return Garbled(fmt::format("{} {} at byte {} of {}", count, name, offset, bytes));
}

bool Within(i64 value, i64 begin, i64 end) { return value >= begin && value < end; }

// [begin, begin + count) within [0, end).
bool RunWithin(i64 begin, i64 count, i64 end) {
  return begin >= 0 && count >= 0 && begin <= end && count <= end - begin;
}

constexpr i64 kMaxDim = 1 << 12;
constexpr i64 kMaxPartials = i64{1} << 40;  // Beyond every memory; products with dims fit 64 bits.

// What kernels size their scratch by and divide by.
bool DimsAreSound(const contract::PlanHeader& h) {
  return h.batch >= 0 && h.segments >= 1 && h.q_heads >= 1 && h.kv_heads >= 1 &&
         h.q_heads % h.kv_heads == 0 && Within(h.head_dim_qk, 1, kMaxDim) &&
         Within(h.head_dim_vo, 1, kMaxDim) && Within(h.partials, 0, kMaxPartials) &&
         Within(h.path, 0, static_cast<int>(contract::PathId::kCuda) + 1) &&
         Within(h.accuracy, 0, 3);
}

bool RequestsAreSound(const PlanDataView& view) {
  const contract::PlanHeader& h = *view.header;
  for (std::size_t r = 0; r < view.requests.size(); ++r) {
    const contract::RequestInfo& info = view.requests[r];
    const i64 row = static_cast<i64>(r);
    if (info.q_row_begin < 0 || info.q_len < 0 || info.kv_len < 0 || info.mask_byte_begin < 0 ||
        info.key_position_begin < 0 || view.segment_begin(row, 0) != 0 ||
        view.segment_begin(row, h.segments) != info.kv_len) {
      return false;
    }
    for (i64 s = 0; s < h.segments; ++s) {
      if (view.segment_begin(row, s) > view.segment_begin(row, s + 1)) return false;
    }
  }
  return true;
}

bool BlockIsSound(const PlanDataView& view, const contract::RowBlock& block) {
  const contract::PlanHeader& h = *view.header;
  if (!Within(block.request, 0, h.batch) || block.splits < 0) return false;
  const i64 q_len = view.requests[static_cast<std::size_t>(block.request)].q_len;
  if (!RunWithin(block.q_head_begin, block.q_head_count, h.q_heads) || block.q_head_count == 0 ||
      !RunWithin(block.row_begin, block.row_count, q_len)) {
    return false;
  }
  if (block.splits <= 1) return true;
  i64 partials = 0;
  return !__builtin_mul_overflow(block.vectors(), i64{block.splits}, &partials) &&
         RunWithin(block.partial_begin, partials, h.partials);
}

bool ItemIsSound(const PlanDataView& view, const contract::WorkItem& item) {
  const contract::PlanHeader& h = *view.header;
  if (!RunWithin(item.head_begin, item.head_count, h.kv_heads) ||
      !RunWithin(item.span_begin, item.span_count, h.spans) || item.key_begin < 0) {
    return false;
  }
  for (int s = item.span_begin; s < item.span_begin + item.span_count; ++s) {
    const contract::WorkSpan& span = view.spans[static_cast<std::size_t>(s)];
    const contract::RowBlock& block = view.blocks[static_cast<std::size_t>(span.block)];
    const i64 kv_len = view.requests[static_cast<std::size_t>(block.request)].kv_len;
    if (item.key_end > kv_len) return false;
    // On a GPU each span has some of the item's heads; on the CPU each has all.
    const i64 group = h.q_heads / h.kv_heads;
    if (h.path != static_cast<int>(contract::PathId::kCuda) &&
        !RunWithin(item.head_begin * group - block.q_head_begin, item.head_count * group,
                   block.q_head_count)) {
      return false;
    }
  }
  return true;
}

// Of a GPU: each block's items are a run of the list.
bool LaunchesAreSound(const PlanDataView& view) {
  const contract::PlanHeader& h = *view.header;
  if (h.path != static_cast<int>(contract::PathId::kCuda)) return true;
  if (h.segments > contract::kMaxSegments || h.launches < 1) return false;
  for (const contract::LaunchInfo& launch : view.launches) {
    if (launch.grid < 0 || !RunWithin(launch.slot_begin, i64{launch.grid} + 1, h.slots))
      return false;
    for (int i = 0; i <= launch.grid; ++i) {
      const auto at = static_cast<std::size_t>(launch.slot_begin) + static_cast<std::size_t>(i);
      const int least = i == 0 ? 0 : view.slot_begins[at - 1];
      if (!Within(view.slot_begins[at], least, i64{h.items} + 1)) return false;
    }
  }
  return true;
}

// That no entry points outside the lists.
Status CheckLists(const PlanDataView& view) {
  if (!RequestsAreSound(view)) return Garbled("lengths that do not fit together");
  if (!LaunchesAreSound(view)) return Garbled("launches of no GPU plan");
  for (const contract::RowBlock& block : view.blocks) {
    if (!BlockIsSound(view, block)) return Garbled("a row block outside its request or workspace");
  }
  for (const contract::WorkSpan& span : view.spans) {
    if (!Within(span.block, 0, view.header->blocks) ||
        !Within(span.split, 0, view.blocks[static_cast<std::size_t>(span.block)].splits)) {
      return Garbled("a span of no row block");
    }
  }
  for (const contract::WorkItem& item : view.items) {
    if (!ItemIsSound(view, item)) return Garbled("a work item outside its request");
  }
  for (const contract::MergeItem& merge : view.merges) {
    if (!Within(merge.block, 0, view.header->blocks) ||
        view.blocks[static_cast<std::size_t>(merge.block)].splits == 1 ||
        !RunWithin(merge.begin, merge.count,
                   view.blocks[static_cast<std::size_t>(merge.block)].vectors())) {
      return Garbled("a merge of no row block");
    }
  }
  return {};
}

}  // namespace

Status CheckPlanData(std::span<const std::byte> data) {
  contract::PlanHeader h;
  if (data.size() < sizeof(h)) {
    return Garbled(fmt::format("{} bytes, less than a header", data.size()));
  }
  std::memcpy(&h, data.data(), sizeof(h));
  if (h.magic != contract::kPlanMagic || h.version != contract::kPlanVersion) {
    return Garbled("of another version, or no plan");
  }
  if (h.total_bytes != static_cast<i64>(data.size())) {
    return Garbled(fmt::format("{} bytes, its header says {}", data.size(), h.total_bytes));
  }
  if (!DimsAreSound(h)) return Garbled("a header of no plan");
  const i64 begins = i64{h.batch} * (i64{h.segments} + 1);
  const struct {
    i64 offset, count, size;
    std::string_view name;
  } arrays[] = {
      {h.launches_offset, h.launches, sizeof(contract::LaunchInfo), "launches"},
      {h.slots_offset, h.slots, sizeof(int), "slots"},
      {h.requests_offset, h.batch, sizeof(contract::RequestInfo), "requests"},
      {h.segment_begin_offset, begins, sizeof(i64), "segment begins"},
      {h.blocks_offset, h.blocks, sizeof(contract::RowBlock), "row blocks"},
      {h.spans_offset, h.spans, sizeof(contract::WorkSpan), "spans"},
      {h.items_offset, h.items, sizeof(contract::WorkItem), "work items"},
      {h.merges_offset, h.merges, sizeof(contract::MergeItem), "merges"},
  };
  for (const auto& array : arrays) {
    KVILT_RETURN_IF_ERROR(CheckArray(data, array.offset, array.count, array.size, array.name));
  }
  return CheckLists(ViewPlanData(data));
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
