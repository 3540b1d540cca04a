// What depends on addresses and values: checked when planning and again on every run.
#include <fmt/format.h>

#include "src/core/check.h"
#include "src/plan/validate.h"

namespace kvilt::plan {
namespace {

// Calls visit(prefix, name, tensor) for each tensor that a run reads.
template <class Visit>
Status ForEachInput(const AttentionRequest& request, Visit&& visit) {
  KVILT_RETURN_IF_ERROR(visit("", "q", request.q));
  KVILT_RETURN_IF_ERROR(visit("", "q_scales", request.q_scales));
  KVILT_RETURN_IF_ERROR(visit("", "mask_bits", request.mask_bits));
  KVILT_RETURN_IF_ERROR(visit("", "sink", request.sink));
  if (request.alibi) KVILT_RETURN_IF_ERROR(visit("", "alibi.slopes", request.alibi->slopes));
  for (std::size_t i = 0; i < request.segments.size(); ++i) {
    const Segment& segment = request.segments[i];
    const std::string prefix = fmt::format("segments[{}]", i);
    KVILT_RETURN_IF_ERROR(visit(prefix, "k.data", segment.k().data));
    KVILT_RETURN_IF_ERROR(visit(prefix, "k.scales", segment.k().scales));
    KVILT_RETURN_IF_ERROR(visit(prefix, "v.data", segment.v().data));
    KVILT_RETURN_IF_ERROR(visit(prefix, "v.scales", segment.v().scales));
  }
  return {};
}

Status CheckApart(const TensorView& written, std::string_view name, const TensorView& other,
                  const FieldPath& other_name) {
  if (!written.defined() || !other.defined() || !MayOverlap(written, other)) return {};
  return Status::Invalid(std::string(name),
                         fmt::format("overlaps {}, expected memory of its own", other_name.str()));
}

// The tokens of a segment are bounded by its table, so a cache without any may be null.
bool HasTokens(const Segment& segment) {
  if (const RaggedKv* ragged = segment.ragged()) {
    return ragged->indptr.size > 0 && ragged->indptr[ragged->indptr.size - 1] > ragged->indptr[0];
  }
  const PageTable& table = segment.paged()->table;
  const IndexArray& counts = table.kv_len.defined() ? table.kv_len : table.last_page_len;
  for (std::int64_t i = 0; i < counts.size; ++i) {
    if (counts[i] > 0) return true;
  }
  return false;
}

Status CheckNulls(const AttentionRequest& request) {
  const bool any_row = request.q_indptr[request.q_indptr.size - 1] > 0;
  if (any_row) KVILT_RETURN_IF_ERROR(CheckAddressed(request.out, {"", "out"}));
  if (any_row && request.lse.defined()) {
    KVILT_RETURN_IF_ERROR(CheckAddressed(request.lse, {"", "lse"}));
  }
  return ForEachInput(
      request,
      [&](std::string_view prefix, std::string_view name, const TensorView& tensor) -> Status {
        const bool of_cache = !prefix.empty();  // Those are checked by their tables.
        if (of_cache || !any_row || !tensor.defined()) return {};
        return CheckAddressed(tensor, {prefix, name});
      });
}

}  // namespace

Status CheckMemory(const AttentionRequest& request, DeviceKind device) {
  KVILT_RETURN_IF_ERROR(CheckNulls(request));
  for (std::size_t i = 0; i < request.segments.size(); ++i) {
    const Segment& segment = request.segments[i];
    const std::string prefix = fmt::format("segments[{}]", i);
    const std::int64_t kv_heads =
        segment.k().data.shape[segment.k().data.rank - 2 - (segment.k().layout == KvLayout::kHND)];
    KVILT_RETURN_IF_ERROR(
        CheckDecodeScale(segment.k().global, kv_heads, device, {prefix, "k.global"}));
    KVILT_RETURN_IF_ERROR(
        CheckDecodeScale(segment.v().global, kv_heads, device, {prefix, "v.global"}));
    if (HasTokens(segment)) KVILT_RETURN_IF_ERROR(CheckCacheAddressed(segment, prefix));
  }

  KVILT_RETURN_IF_ERROR(CheckNoSelfOverlap(request.out, {"", "out"}));
  if (request.lse.defined()) {
    KVILT_RETURN_IF_ERROR(CheckNoSelfOverlap(request.lse, {"", "lse"}));
    KVILT_RETURN_IF_ERROR(CheckApart(request.lse, "lse", request.out, {"", "out"}));
  }
  return ForEachInput(
      request,
      [&](std::string_view prefix, std::string_view name, const TensorView& tensor) -> Status {
        KVILT_RETURN_IF_ERROR(CheckApart(request.out, "out", tensor, {prefix, name}));
        return CheckApart(request.lse, "lse", tensor, {prefix, name});
      });
}

}  // namespace kvilt::plan
