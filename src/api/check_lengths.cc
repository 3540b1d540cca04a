#include <fmt/format.h>

#include <algorithm>

#include "src/api/check_run.h"
#include "src/contract/visibility.h"
#include "src/core/check.h"
#include "src/plan/tensor_check.h"
#include "src/plan/validate.h"

namespace kvilt::api {
namespace {

using plan::FieldPath;

Status Stale(std::string field, std::int64_t request, std::string_view what, std::int64_t planned,
             std::int64_t found) {
  return Status::Precondition(
      std::move(field),
      fmt::format("request {} has {} {}, the plan was made for {}; plan again or UpdatePlan",
                  request, found, what, planned));
}

DeviceKind DeviceOf(const plan::PlanDataView& view) {
  const bool cuda = view.header->path == static_cast<int>(contract::PathId::kCuda);
  return cuda ? DeviceKind::kCuda : DeviceKind::kCpu;
}

// The table of one segment against the plan's lengths.
class SegmentLengths {
 public:
  SegmentLengths(const plan::PlanDataView& view, const Segment& segment, std::int64_t index)
      : view_(view), segment_(segment), index_(index) {
    const auto end = fmt::format_to_n(prefix_, sizeof(prefix_), "segments[{}]", index);
    prefix_size_ = std::min(end.size, sizeof(prefix_));
  }

  Status Check() const {
    const bool shared = !segment_.owners.empty();
    const std::int64_t batch = view_.header->batch;
    KVILT_RETURN_IF_ERROR(CheckArrays(shared ? 1 : batch));
    std::int64_t tokens = 0;
    if (shared) KVILT_RETURN_IF_ERROR(ReadRow(0, tokens));
    std::size_t owner = 0;
    for (std::int64_t r = 0; r < batch; ++r) {
      const bool owns = !shared || (owner < segment_.owners.size() && segment_.owners[owner] == r);
      if (shared && owns) ++owner;
      if (!shared) KVILT_RETURN_IF_ERROR(ReadRow(r, tokens));
      const std::int64_t found = owns ? tokens : 0;
      const std::int64_t planned =
          view_.segment_begin(r, index_ + 1) - view_.segment_begin(r, index_);
      if (found != planned) return Stale(Path(LengthField()), r, "keys here", planned, found);
    }
    if (shared && owner != segment_.owners.size()) {
      return Status::Invalid(Path("owners"),
                             fmt::format("owners[{}] = {}; accepted: strictly increasing requests "
                                         "below the batch of {}",
                                         owner, segment_.owners[owner], batch));
    }
    return {};
  }

 private:
  std::string_view prefix() const { return {prefix_, prefix_size_}; }
  FieldPath At(std::string_view name) const { return {prefix(), name}; }
  std::string Path(std::string_view name) const { return At(name).str(); }
  std::string Entry(std::string_view name, std::int64_t i) const {
    return At(name).str(fmt::format("[{}]", i));
  }
  std::string_view LengthField() const {
    if (segment_.ragged() != nullptr) return "indptr";
    return segment_.paged()->table.kv_len.defined() ? "table.kv_len" : "table.last_page_len";
  }

  Status CheckArrays(std::int64_t rows) const {
    if (const RaggedKv* ragged = segment_.ragged()) {
      return Host(ragged->indptr, rows + 1, "indptr");
    }
    const PageTable& table = segment_.paged()->table;
    if (table.indptr.defined()) {
      KVILT_RETURN_IF_ERROR(Host(table.indptr, rows + 1, "table.indptr"));
    } else if (table.row_stride < 0) {
      return Status::Invalid(Path("table.row_stride"),
                             fmt::format("{}; accepted: at least 0", table.row_stride));
    }
    if (table.last_page_len.defined()) {
      if (table.kv_len.defined() || !table.indptr.defined()) {
        return Status::Invalid(Path("table.last_page_len"), "goes with an indptr and no kv_len");
      }
      KVILT_RETURN_IF_ERROR(Host(table.last_page_len, rows, "table.last_page_len"));
    } else {
      KVILT_RETURN_IF_ERROR(Host(table.kv_len, rows, "table.kv_len"));
    }
    return plan::CheckIndexArray(table.indices, plan::kAnyExtent, false, DeviceOf(view_),
                                 At("table.indices"));
  }
  Status Host(const IndexArray& array, std::int64_t size, std::string_view name) const {
    return plan::CheckIndexArray(array, size, true, DeviceKind::kCpu, At(name));
  }

  Status ReadRow(std::int64_t row, std::int64_t& tokens) const {
    if (const RaggedKv* ragged = segment_.ragged()) {
      const CacheSide& k = ragged->k;
      const std::int64_t total = k.data.shape[k.layout == KvLayout::kNHD ? 0 : 1];
      std::int64_t begin = 0;
      return Range(ragged->indptr, "indptr", row, total, begin, tokens);
    }
    return ReadPagedRow(segment_.paged()->table, row, tokens);
  }

  Status ReadPagedRow(const PageTable& table, std::int64_t row, std::int64_t& tokens) const {
    const CacheSide& k = segment_.k();
    const std::int64_t page_size = k.data.shape[k.layout == KvLayout::kNHD ? 1 : 2];
    const bool csr = table.indptr.defined();
    std::int64_t begin = 0;
    std::int64_t held = table.row_stride;
    if (csr) {
      KVILT_RETURN_IF_ERROR(
          Range(table.indptr, "table.indptr", row, table.indices.size, begin, held));
    } else if (__builtin_mul_overflow(row, table.row_stride, &begin)) {
      return Status::Invalid(Path("table.row_stride"), "rows times row_stride overflows 64 bits");
    }
    if (table.last_page_len.defined()) {
      KVILT_RETURN_IF_ERROR(FromLastPage(table.last_page_len[row], row, held, page_size, tokens));
    } else {
      tokens = table.kv_len[row];
    }
    if (tokens < 0) {
      return Status::Invalid(Entry(LengthField(), row), fmt::format("{} tokens", tokens));
    }
    const std::int64_t needed = tokens / page_size + (tokens % page_size != 0);
    if (needed > held || (!csr && needed > 0 && needed > table.indices.size - begin)) {
      return Status::Invalid(
          Entry(LengthField(), row),
          fmt::format("{} tokens in pages of {} need {} pages, the table gives "
                      "this row {}",
                      tokens, page_size, needed,
                      std::clamp<std::int64_t>(table.indices.size - begin, 0, held)));
    }
    return {};
  }

  Status FromLastPage(std::int64_t last, std::int64_t row, std::int64_t held,
                      std::int64_t page_size, std::int64_t& tokens) const {
    tokens = 0;
    if (held == 0) return {};
    if (last < 1 || last > page_size) {
      return Status::Invalid(Entry("table.last_page_len", row),
                             fmt::format("{}; accepted: 1 to page_size, {}", last, page_size));
    }
    if (__builtin_mul_overflow(held - 1, page_size, &tokens) ||
        __builtin_add_overflow(tokens, last, &tokens)) {
      return Status::Invalid(Entry("table.last_page_len", row), "the length overflows 64 bits");
    }
    return {};
  }

  // Entries [begin, begin + count) of row `row` of an indptr over `limit` entries.
  Status Range(const IndexArray& indptr, std::string_view name, std::int64_t row,
               std::int64_t limit, std::int64_t& begin, std::int64_t& count) const {
    begin = indptr[row];
    const std::int64_t end = indptr[row + 1];
    if (begin < 0 || end < begin || end > limit) {
      return Status::Invalid(Entry(name, row + 1),
                             fmt::format("row {} is [{}, {}); accepted: within [0, {}) and never "
                                         "decreasing",
                                         row, begin, end, limit));
    }
    count = end - begin;
    return {};
  }

  const plan::PlanDataView& view_;
  const Segment& segment_;
  const std::int64_t index_;
  char prefix_[32] = {};
  std::size_t prefix_size_ = 0;
};

Status CheckRows(const plan::PlanDataView& view, const AttentionRequest& request) {
  const std::int64_t batch = view.header->batch;
  if (request.batch() != batch) {
    return Status::Precondition(
        "q_indptr", fmt::format("{} requests, the plan was made for {}", request.batch(), batch));
  }
  KVILT_RETURN_IF_ERROR(
      plan::CheckIndexArray(request.q_indptr, batch + 1, true, DeviceKind::kCpu, {{}, "q_indptr"}));
  for (std::int64_t r = 0; r < batch; ++r) {
    const contract::RequestInfo& info = view.requests[static_cast<std::size_t>(r)];
    const std::int64_t begin = request.q_indptr[r];
    const std::int64_t rows = request.q_indptr[r + 1] - begin;
    if (rows != info.q_len) return Stale("q_indptr", r, "query rows", info.q_len, rows);
    if (begin != info.q_row_begin) {
      return Stale("q_indptr", r, "as its first row", info.q_row_begin, begin);
    }
  }
  return {};
}

Status CheckMaskBytes(const plan::PlanDataView& view, const AttentionRequest& request) {
  const bool given = request.mask_indptr.defined();
  const std::int64_t batch = view.header->batch;
  if (given) {
    KVILT_RETURN_IF_ERROR(plan::CheckIndexArray(request.mask_indptr, batch + 1, true,
                                                DeviceKind::kCpu, {{}, "mask_indptr"}));
  }
  std::int64_t packed = 0;
  for (std::int64_t r = 0; r < batch; ++r) {
    const contract::RequestInfo& info = view.requests[static_cast<std::size_t>(r)];
    const std::int64_t bytes =
        contract::MaskBytes(static_cast<int>(request.mask), info.q_len, info.kv_len);
    if (bytes == 0) continue;
    const std::int64_t begin = given ? request.mask_indptr[r] : packed;
    if (begin != info.mask_byte_begin) {
      return Stale("mask_indptr", r, "as its first mask byte", info.mask_byte_begin, begin);
    }
    packed += bytes;
  }
  return {};
}

Status CheckPositions(const plan::PlanDataView& view, const AttentionRequest& request) {
  std::int64_t q_rows = 0;
  std::int64_t keys = 0;
  for (const contract::RequestInfo& info : view.requests) {
    q_rows = std::max<std::int64_t>(q_rows, info.q_row_begin + info.q_len);
    keys = std::max<std::int64_t>(keys, info.key_position_begin + info.kv_len);
  }
  const auto check = [&](const IndexArray& array, std::int64_t size, std::string_view name,
                         bool host) {
    if (!array.defined()) return Status();
    KVILT_RETURN_IF_ERROR(
        plan::CheckIndexArray(array, plan::kAnyExtent, host, DeviceOf(view), {{}, name}));
    if (array.size < size) {
      return Status::Invalid(std::string(name),
                             fmt::format("{} entries, the batch needs {}", array.size, size));
    }
    return array.on_host() ? plan::CheckPositionValues(array, size, name) : Status();
  };
  KVILT_RETURN_IF_ERROR(check(request.q_positions, q_rows, "q_positions", true));
  if (!request.rope) return {};
  return check(request.rope->key_positions, keys, "rope.key_positions", false);
}

}  // namespace

Status CheckLengths(const plan::PlanDataView& view, const AttentionRequest& request) {
  KVILT_RETURN_IF_ERROR(CheckRows(view, request));
  for (std::size_t s = 0; s < request.segments.size(); ++s) {
    KVILT_RETURN_IF_ERROR(
        SegmentLengths(view, request.segments[s], static_cast<std::int64_t>(s)).Check());
  }
  KVILT_RETURN_IF_ERROR(CheckMaskBytes(view, request));
  return CheckPositions(view, request);
}

}  // namespace kvilt::api
