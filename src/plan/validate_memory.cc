// What depends on addresses and values: checked when planning and again on every run.
#include <fmt/format.h>

#include "src/core/check.h"
#include "src/plan/operands.h"
#include "src/plan/validate.h"

namespace kvilt::plan {
namespace {

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

bool IsOutput(const FieldPath& path) { return path.name == "out" || path.name == "lse"; }

// Caches are addressed when some row has a token, everything else when there is a query row.
Status CheckNulls(const AttentionRequest& request) {
  const bool any_row = request.q_indptr[request.q_indptr.size - 1] > 0;
  return ForEachTensor(request, [&](const FieldPath& path, const TensorView& tensor) {
    const bool of_cache = !path.prefix.empty();
    return any_row && !of_cache ? CheckAddressed(tensor, path) : Status();
  });
}

Status CheckCaches(const AttentionRequest& request, DeviceKind device) {
  for (std::size_t i = 0; i < request.segments.size(); ++i) {
    const Segment& segment = request.segments[i];
    const std::string prefix = fmt::format("segments[{}]", i);
    const TensorView& data = segment.k().data;
    const int head_axis = data.rank - (segment.k().layout == KvLayout::kNHD ? 2 : 3);
    const std::int64_t kv_heads = data.shape[head_axis];
    KVILT_RETURN_IF_ERROR(
        CheckDecodeScale(segment.k().global, kv_heads, device, {prefix, "k.global"}));
    KVILT_RETURN_IF_ERROR(
        CheckDecodeScale(segment.v().global, kv_heads, device, {prefix, "v.global"}));
    if (HasTokens(segment)) KVILT_RETURN_IF_ERROR(CheckCacheAddressed(segment, prefix));
  }
  return {};
}

}  // namespace

Status CheckMemory(const AttentionRequest& request, DeviceKind device) {
  KVILT_RETURN_IF_ERROR(CheckNulls(request));
  KVILT_RETURN_IF_ERROR(CheckCaches(request, device));
  KVILT_RETURN_IF_ERROR(CheckNoSelfOverlap(request.out, {"", "out"}));
  if (request.lse.defined()) {
    KVILT_RETURN_IF_ERROR(CheckNoSelfOverlap(request.lse, {"", "lse"}));
    KVILT_RETURN_IF_ERROR(CheckApart(request.lse, "lse", request.out, {"", "out"}));
  }
  return ForEachTensor(request, [&](const FieldPath& path, const TensorView& tensor) {
    if (IsOutput(path)) return Status();
    KVILT_RETURN_IF_ERROR(CheckApart(request.out, "out", tensor, path));
    return CheckApart(request.lse, "lse", tensor, path);
  });
}

}  // namespace kvilt::plan
