// DequantizeKv: checks everything, names every token's slot, then reads.
#include "src/cpu/dequantize.h"

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

Status CheckRows(const TensorView& out, std::int64_t tokens, int kv_heads, int head_dim,
                 std::string_view name, const Segment& cache) {
  if (!out.defined()) return {};
  const plan::FieldPath path{"", name};
  KVILT_RETURN_IF_ERROR(plan::CheckDType(out, {DType::kF32, DType::kBF16, DType::kF16}, path));
  const plan::TensorRule rule{3, {tokens, kv_heads, head_dim}, {"tokens", "kv_heads", "head_dim"}};
  KVILT_RETURN_IF_ERROR(plan::CheckTensor(out, rule, kDevice, path));
  KVILT_RETURN_IF_ERROR(plan::CheckAddressed(out, path));
  KVILT_RETURN_IF_ERROR(plan::CheckNoSelfOverlap(out, path));
  KVILT_RETURN_IF_ERROR(
      api::ForEachCacheTensor(cache, [&](std::string_view other, const TensorView& tensor) {
        return api::CheckApart(out, name, tensor, other);
      }));
  return api::CheckApartFromTable(out, name, cache);
}

Result<std::int64_t> TotalTokens(const SegmentGeometry& geometry) {
  std::int64_t total = 0;
  for (std::int64_t length : geometry.lengths) {
    if (!plan::Add(total, length, total)) {
      return Status::Invalid("cache.table.kv_len", "the sum of the lengths overflows 64 bits");
    }
  }
  return total;
}

Result<SegmentGeometry> Check(const Segment& cache, const TensorView& out_k,
                              const TensorView& out_v) {
  if (!out_k.defined() && !out_v.defined()) {
    return Status::Invalid("out_k", "neither out_k nor out_v is given, expected at least one");
  }
  Result<SegmentGeometry> geometry =
      plan::CheckSegment(cache, plan::kAnyExtent, kDevice, true, "cache");
  if (!geometry.ok()) return geometry;
  const Result<std::int64_t> tokens = TotalTokens(*geometry);
  if (!tokens.ok()) return tokens.status();
  KVILT_RETURN_IF_ERROR(
      CheckRows(out_k, *tokens, geometry->kv_heads, geometry->head_dim_k, "out_k", cache));
  KVILT_RETURN_IF_ERROR(
      CheckRows(out_v, *tokens, geometry->kv_heads, geometry->head_dim_v, "out_v", cache));
  KVILT_RETURN_IF_ERROR(api::CheckApart(out_v, "out_v", out_k, "out_k"));
  return geometry;
}

std::vector<i64> AllSlots(const contract::SegmentParams& segment, const SegmentGeometry& geometry) {
  std::vector<i64> slots;
  for (std::size_t r = 0; r < geometry.lengths.size(); ++r) {
    api::PushSlots(segment, static_cast<std::int64_t>(r), 0, geometry.lengths[r], slots);
  }
  return slots;
}

}  // namespace

Status DequantizeKv(const Device& device, const Segment& cache, const TensorView& out_k,
                    const TensorView& out_v, Stream stream) {
  KVILT_RETURN_IF_ERROR(api::CheckOnCpu(device, "DequantizeKv"));
  KVILT_RETURN_IF_ERROR(api::CheckStream(device, stream));
  return api::OrNoMemory("cache", "the slots of its tokens", [&]() -> Status {
    const Result<SegmentGeometry> geometry = Check(cache, out_k, out_v);
    if (!geometry.ok()) return geometry.status();
    const contract::SegmentParams segment = api::BindSegment(cache);
    const std::vector<i64> slots = AllSlots(segment, *geometry);
    contract::DequantizeParams params;
    params.k_rows = api::BindRows(out_k);
    params.v_rows = api::BindRows(out_v);
    params.k = segment.k;
    params.v = segment.v;
    params.tokens = static_cast<i64>(slots.size());
    params.kv_heads = geometry->kv_heads;
    params.page_size = segment.page_size;
    params.slots = slots.data();
    cpu::Dequantize(params, *device.impl()->pool);
    return {};
  });
}

}  // namespace kvilt
