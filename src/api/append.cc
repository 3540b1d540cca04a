// AppendKv: checks everything, names every token's slot, then writes.
#include "src/cpu/append.h"

#include <fmt/format.h>

#include <vector>

#include "kvilt/attention.h"
#include "src/api/bind.h"
#include "src/api/bind_rows.h"
#include "src/api/cache_slots.h"
#include "src/api/check_apart.h"
#include "src/api/check_stream.h"
#include "src/api/device_impl.h"
#include "src/api/no_memory.h"
#include "src/core/check.h"
#include "src/plan/validate_segment.h"

namespace kvilt {
namespace {

using contract::i64;
using plan::SegmentGeometry;

constexpr DeviceKind kDevice = DeviceKind::kCpu;

std::int64_t TokensOf(const AppendRequest& request) { return request.k.shape[0]; }

Status CheckSource(const TensorView& source, std::int64_t tokens, const SegmentGeometry& geometry,
                   int head_dim, std::string_view name) {
  const plan::FieldPath path{"", name};
  if (source.defined()) {
    KVILT_RETURN_IF_ERROR(plan::CheckDType(source, {DType::kF32, DType::kBF16, DType::kF16}, path));
  }
  const plan::TensorRule rule{
      3, {tokens, geometry.kv_heads, head_dim}, {"tokens", "kv_heads", "head_dim"}};
  KVILT_RETURN_IF_ERROR(plan::CheckTensor(source, rule, kDevice, path));
  return plan::CheckAddressed(source, path);
}

// Each cache tensor apart from itself, the rest of the cache, and the sources.
Status CheckWritten(const AppendRequest& request) {
  KVILT_RETURN_IF_ERROR(api::CheckCacheApart(request.cache));
  return api::ForEachCacheTensor(
      request.cache, [&](std::string_view name, const TensorView& tensor) -> Status {
        if (api::IsGlobal(name)) return {};
        KVILT_RETURN_IF_ERROR(api::CheckApart(tensor, name, request.k, "k"));
        return api::CheckApart(tensor, name, request.v, "v");
      });
}

// And from the arrays that say which rows are written. REQUIRES: these were checked.
Status CheckArraysApart(const AppendRequest& request) {
  return api::ForEachCacheTensor(
      request.cache, [&](std::string_view name, const TensorView& tensor) -> Status {
        if (api::IsGlobal(name)) return {};
        if (request.slots.defined()) {
          return api::CheckApart(tensor, name, api::IndexView(request.slots), "slots");
        }
        KVILT_RETURN_IF_ERROR(api::CheckApartFromTable(tensor, name, request.cache));
        return api::CheckApart(tensor, name, api::IndexView(request.token_indptr), "token_indptr");
      });
}

Status CheckForm(const AppendRequest& request) {
  if (!request.k.defined()) {
    return Status::Invalid("k", "not given, expected [tokens, kv_heads, head_dim]");
  }
  if (request.slots.defined() && request.token_indptr.defined()) {
    return Status::Invalid("slots", "given beside token_indptr, expected exactly one of the two");
  }
  if (!request.slots.defined() && !request.token_indptr.defined() && TokensOf(request) != 0) {
    return Status::Invalid("token_indptr", "not given, expected token_indptr or slots");
  }
  if (!request.cache.owners.empty()) {
    return Status::Invalid("cache.owners",
                           fmt::format("{} owners, expected none: appending needs a private cache",
                                       request.cache.owners.size()));
  }
  const bool nvfp4 = request.cache.k().data.dtype == DType::kNVFP4 ||
                     request.cache.v().data.dtype == DType::kNVFP4;
  if (request.four_over_six && !nvfp4) {
    return Status::Invalid("four_over_six", "true, expected false: neither side is nvfp4");
  }
  return {};
}

// The slots as given, each -1 or inside the cache.
Status SlotsOfMapping(const AppendRequest& request, const SegmentGeometry& geometry,
                      std::vector<i64>& slots) {
  const plan::FieldPath path{"", "slots"};
  KVILT_RETURN_IF_ERROR(
      plan::CheckIndexArray(request.slots, TokensOf(request), true, kDevice, path));
  const std::int64_t end = geometry.pages * geometry.page_size;
  slots.reserve(static_cast<std::size_t>(request.slots.size));
  for (std::int64_t i = 0; i < request.slots.size; ++i) {
    const std::int64_t slot = request.slots[i];
    if (slot < -1 || slot >= end) {
      return Status::Invalid(path.str(fmt::format("[{}]", i)),
                             fmt::format("{}, expected -1 (skip) or 0..{} ({} pages of {})", slot,
                                         end - 1, geometry.pages, geometry.page_size));
    }
    slots.push_back(slot);
  }
  const api::SlotPair pair = api::FindDuplicate(slots);
  if (pair.second < 0) return {};
  return Status::Invalid(path.str(fmt::format("[{}]", pair.second)),
                         fmt::format("{}, as slots[{}]; expected each slot at most once",
                                     request.slots[pair.second], pair.first));
}

constexpr plan::FieldPath kTokenIndptr{"", "token_indptr"};

Status CheckTokenIndptrArray(const IndexArray& indptr) {
  KVILT_RETURN_IF_ERROR(
      plan::CheckIndexArray(indptr, plan::kAnyExtent, true, kDevice, kTokenIndptr));
  if (indptr.size >= 1) return {};
  return Status::Invalid(kTokenIndptr.str(".size"), "0, expected batch + 1");
}

Status CheckTokenIndptrValues(const AppendRequest& request) {
  const IndexArray& indptr = request.token_indptr;
  if (indptr[0] != 0) {
    return Status::Invalid(kTokenIndptr.str("[0]"), fmt::format("{}, expected 0", indptr[0]));
  }
  for (std::int64_t r = 0; r + 1 < indptr.size; ++r) {
    if (indptr[r + 1] < indptr[r] || indptr[r + 1] > TokensOf(request)) {
      return Status::Invalid(
          kTokenIndptr.str(fmt::format("[{}]", r + 1)),
          fmt::format("{} after {} (request {}), expected not to decrease and <= {}, the tokens "
                      "of k",
                      indptr[r + 1], indptr[r], r, TokensOf(request)));
    }
  }
  return {};
}

// The request whose tokens hold place `i` of the slots.
std::int64_t RequestOf(const IndexArray& indptr, std::int64_t i) {
  std::int64_t r = 0;
  while (indptr[r + 1] <= i) ++r;
  return r;
}

// Slots of the last n_r tokens of each request. REQUIRES: a checked token_indptr.
Status SlotsOfTable(const AppendRequest& request, const SegmentGeometry& geometry,
                    std::vector<i64>& slots) {
  const IndexArray& indptr = request.token_indptr;
  const std::int64_t batch = indptr.size - 1;
  for (std::int64_t r = 0; r < batch; ++r) {
    const std::int64_t count = indptr[r + 1] - indptr[r];
    const std::int64_t length = geometry.lengths[static_cast<std::size_t>(r)];
    if (count > length) {
      return Status::Invalid(
          geometry.paged ? "cache.table.kv_len" : "cache.indptr",
          fmt::format("request {} has {} tokens, expected >= {}, those appended included", r,
                      length, count));
    }
  }
  const contract::SegmentParams segment = api::BindSegment(request.cache);
  slots.reserve(static_cast<std::size_t>(indptr[batch]));
  for (std::int64_t r = 0; r < batch; ++r) {
    const std::int64_t length = geometry.lengths[static_cast<std::size_t>(r)];
    api::PushSlots(segment, r, length - (indptr[r + 1] - indptr[r]), length, slots);
  }
  const api::SlotPair pair = api::FindDuplicate(slots);
  if (pair.second < 0) return {};
  const i64 slot = slots[static_cast<std::size_t>(pair.second)];
  return Status::Invalid(
      "cache.table.indices",
      fmt::format("page {} entry {} would be written for request {} and again for request {}; "
                  "expected pages of its own for each",
                  slot / geometry.page_size, slot % geometry.page_size,
                  RequestOf(indptr, pair.first), RequestOf(indptr, pair.second)));
}

// Checks the cache and names the slot of every token that is written.
Result<SegmentGeometry> Resolve(const AppendRequest& request, std::vector<i64>& slots) {
  const bool by_table = request.token_indptr.defined();
  if (by_table) KVILT_RETURN_IF_ERROR(CheckTokenIndptrArray(request.token_indptr));
  Result<SegmentGeometry> geometry =
      by_table
          ? plan::CheckSegment(request.cache, request.token_indptr.size - 1, kDevice, true, "cache")
          : plan::CheckSides(request.cache, kDevice, TokensOf(request) > 0, "cache");
  if (!geometry.ok()) return geometry;
  const std::int64_t tokens = TokensOf(request);
  KVILT_RETURN_IF_ERROR(CheckSource(request.k, tokens, *geometry, geometry->head_dim_k, "k"));
  KVILT_RETURN_IF_ERROR(CheckSource(request.v, tokens, *geometry, geometry->head_dim_v, "v"));
  KVILT_RETURN_IF_ERROR(CheckWritten(request));
  if (by_table) KVILT_RETURN_IF_ERROR(CheckTokenIndptrValues(request));
  KVILT_RETURN_IF_ERROR(by_table ? SlotsOfTable(request, *geometry, slots)
                                 : SlotsOfMapping(request, *geometry, slots));
  KVILT_RETURN_IF_ERROR(CheckArraysApart(request));
  return geometry;
}

// Borrows from all three.
contract::AppendParams Bind(const AppendRequest& request, const SegmentGeometry& geometry,
                            const std::vector<i64>& slots) {
  const contract::SegmentParams segment = api::BindSegment(request.cache);
  contract::AppendParams params;
  params.k_rows = api::BindRows(request.k);
  params.v_rows = api::BindRows(request.v);
  params.k = segment.k;
  params.v = segment.v;
  params.tokens = static_cast<i64>(slots.size());
  params.kv_heads = geometry.kv_heads;
  params.page_size = segment.page_size;
  params.slots = slots.data();
  params.four_over_six = request.four_over_six ? 1 : 0;
  return params;
}

}  // namespace

Status AppendKv(const Device& device, const AppendRequest& request, HealthCounters* k_health,
                HealthCounters* v_health, Stream stream) {
  KVILT_RETURN_IF_ERROR(api::CheckOnCpu(device, "AppendKv"));
  KVILT_RETURN_IF_ERROR(api::CheckStream(device, stream));
  return api::OrNoMemory("k.shape[0]", "the slots of so many tokens", [&]() -> Status {
    KVILT_RETURN_IF_ERROR(CheckForm(request));
    std::vector<i64> slots;
    const Result<SegmentGeometry> geometry = Resolve(request, slots);
    if (!geometry.ok()) return geometry.status();
    const cpu::AppendHealth health =
        cpu::Append(Bind(request, *geometry, slots), *device.impl()->pool);
    if (k_health != nullptr) cpu::AddHealth(health.k, *k_health);
    if (v_health != nullptr) cpu::AddHealth(health.v, *v_health);
    return {};
  });
}

}  // namespace kvilt
