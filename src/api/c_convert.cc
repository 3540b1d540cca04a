#include "src/api/c_convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include "src/core/check.h"

namespace kvilt::api {
namespace {

static_assert(KVILT_MAX_RANK == kMaxRank);
static_assert(KVILT_F32 == static_cast<int>(DType::kF32));
static_assert(KVILT_NVFP4 == static_cast<int>(DType::kNVFP4));
static_assert(KVILT_I64 == static_cast<int>(DType::kI64));
static_assert(KVILT_CUDA == static_cast<int>(DeviceKind::kCuda));
static_assert(KVILT_HND == static_cast<int>(KvLayout::kHND));
static_assert(KVILT_SCALE_INTERLEAVED4 == static_cast<int>(ScaleLayout::kInterleaved4));
static_assert(KVILT_MASK_NONE == static_cast<int>(MaskMode::kNone));
static_assert(KVILT_MASK_TREE == static_cast<int>(MaskMode::kTree));
static_assert(KVILT_LSE_BASE_TWO == static_cast<int>(LseBase::kTwo));
static_assert(KVILT_ALIBI_ROW_INDEX == static_cast<int>(AlibiOrigin::kRowIndex));
static_assert(KVILT_ROPE_INTERLEAVED == static_cast<int>(RopePairing::kInterleaved));
static_assert(KVILT_ROPE_PROPORTIONAL == static_cast<int>(RopeFrequency::kProportional));
static_assert(KVILT_SPLIT_OFF == static_cast<int>(SplitMode::kOff));
static_assert(KVILT_ACCURACY_F32 == static_cast<int>(Accuracy::kF32));

// The bytes of `from` that this library knows, over the defaults in `to`. Fields that only a newer
// header has must be zero, since they would be ignored.
template <class T>
Status Adopt(const T* from, const char* field, T& to) {
  if (from == nullptr) return Status::Invalid(field, "null; accepted: an address");
  const std::size_t size = from->size;
  if (size < sizeof(size) || size > (std::size_t{1} << 16)) {
    return Status::Invalid(
        fmt::format("{}.size", field),
        fmt::format("{}; accepted: what the struct's kvilt_*_default() sets", from->size));
  }
  std::memcpy(&to, from, std::min(size, sizeof(T)));
  const auto* bytes = reinterpret_cast<const unsigned char*>(from);
  for (std::size_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] == 0) continue;
    return Status::Unsupported(fmt::format("{}.size", field),
                               fmt::format("byte {} is set, this library knows {} bytes of the "
                                           "struct; it is older than the header",
                                           i, sizeof(T)));
  }
  return {};
}

template <class T>
void Return(const T& from, T* to) {
  const std::size_t size = to->size;
  std::memcpy(to, &from, std::min(size, sizeof(T)));
  to->size = size;
}

// A field that has no effect as others stand, given all the same. `why` says how they stand.
Status Unused(const std::string& field, std::string_view found, std::string_view why) {
  return Status::Invalid(field, fmt::format("{} {}; accepted: not given", found, why));
}
// The same of a number, which is given when it is neither 0 nor its default.
template <class T>
Status CheckUnused(T value, T otherwise, const std::string& field, std::string_view why) {
  if (value == T{} || value == otherwise) return {};
  return Unused(field, fmt::format("{}", value), why);
}
Status CheckUnused(const kvilt_index_array& array, const std::string& field, std::string_view why) {
  return array.data == nullptr && array.count == 0 ? Status() : Unused(field, "given", why);
}
Status CheckReserved(std::int32_t value, const std::string& field) {
  if (value == 0) return {};
  return Status::Invalid(field, fmt::format("{}; accepted: 0", value));
}

template <class T>
Status ToEnum(std::int32_t value, T last, const std::string& field, T& to) {
  if (value < 0 || value > static_cast<std::int32_t>(last)) {
    return Status::Invalid(
        field, fmt::format("{}; accepted: 0 to {}", value, static_cast<std::int32_t>(last)));
  }
  to = static_cast<T>(value);
  return {};
}

std::string Join(const char* field, const char* name) { return fmt::format("{}.{}", field, name); }

Status ToDevice(std::int32_t kind, std::int32_t index, const std::string& field, DeviceId& to) {
  to.index = index;
  return ToEnum(kind, DeviceKind::kCuda, field + ".device_kind", to.kind);
}

Status ToIndex(const kvilt_index_array& from, const std::string& field, IndexArray& to) {
  to = {};
  KVILT_RETURN_IF_ERROR(CheckReserved(from.reserved, field + ".reserved"));
  if (from.data == nullptr && from.count == 0) return {};
  to.data = from.data;
  to.size = from.count;
  KVILT_RETURN_IF_ERROR(ToEnum(from.dtype, DType::kI64, field + ".dtype", to.dtype));
  return ToDevice(from.device_kind, from.device_index, field, to.device);
}

Status ToSide(const kvilt_side& from, const std::string& field, CacheSide& to) {
  KVILT_RETURN_IF_ERROR(FromC(from.data, (field + ".data").c_str(), to.data));
  KVILT_RETURN_IF_ERROR(FromC(from.scales, (field + ".scales").c_str(), to.scales));
  KVILT_RETURN_IF_ERROR(ToEnum(from.layout, KvLayout::kHND, field + ".layout", to.layout));
  KVILT_RETURN_IF_ERROR(ToEnum(from.scale_layout, ScaleLayout::kInterleaved4,
                               field + ".scale_layout", to.scale_layout));
  to.scale_row_blocks = from.scale_row_blocks;
  to.global.value = from.global;
  to.global.array = from.global_array;
  to.global.array_size = from.global_count;
  to.global.allow_unusual = from.allow_unusual_scale != 0;
  for (std::size_t i = 0; i < std::size(from.reserved); ++i) {
    KVILT_RETURN_IF_ERROR(
        CheckReserved(from.reserved[i], fmt::format("{}.reserved[{}]", field, i)));
  }
  return ToDevice(from.global_device_kind, from.global_device_index, field + ".global",
                  to.global.device);
}

Status CheckNoLlama31(const kvilt_attention_request& from, std::string_view why) {
  const Rope::Llama31 standard;
  KVILT_RETURN_IF_ERROR(CheckUnused(from.rope_low_freq_factor, standard.low_freq_factor,
                                    "rope_low_freq_factor", why));
  KVILT_RETURN_IF_ERROR(CheckUnused(from.rope_high_freq_factor, standard.high_freq_factor,
                                    "rope_high_freq_factor", why));
  return CheckUnused(from.rope_original_length, standard.original_length, "rope_original_length",
                     why);
}

Status CheckNoRope(const kvilt_attention_request& from) {
  constexpr std::string_view kWhy = "with rope 0";
  const Rope standard;
  KVILT_RETURN_IF_ERROR(CheckUnused(from.rope_pairing, 0, "rope_pairing", kWhy));
  KVILT_RETURN_IF_ERROR(CheckUnused(from.rope_frequency, 0, "rope_frequency", kWhy));
  KVILT_RETURN_IF_ERROR(CheckUnused(from.rope_theta, standard.theta, "rope_theta", kWhy));
  KVILT_RETURN_IF_ERROR(CheckUnused(from.rope_scale, standard.scale, "rope_scale", kWhy));
  KVILT_RETURN_IF_ERROR(CheckUnused(from.rope_rotary_dim, 0, "rope_rotary_dim", kWhy));
  KVILT_RETURN_IF_ERROR(CheckUnused(from.rope_llama31, 0, "rope_llama31", kWhy));
  KVILT_RETURN_IF_ERROR(CheckNoLlama31(from, kWhy));
  return CheckUnused(from.rope_key_positions, "rope_key_positions", kWhy);
}

Status ToRope(const kvilt_attention_request& from, Rope& to) {
  KVILT_RETURN_IF_ERROR(
      ToEnum(from.rope_pairing, RopePairing::kInterleaved, "rope_pairing", to.pairing));
  KVILT_RETURN_IF_ERROR(
      ToEnum(from.rope_frequency, RopeFrequency::kProportional, "rope_frequency", to.frequency));
  to.theta = from.rope_theta;
  to.rotary_dim = from.rope_rotary_dim;
  to.scale = from.rope_scale;
  if (from.rope_llama31 != 0) {
    to.llama31 = Rope::Llama31{from.rope_low_freq_factor, from.rope_high_freq_factor,
                               from.rope_original_length};
  } else {
    KVILT_RETURN_IF_ERROR(CheckNoLlama31(from, "with rope_llama31 0"));
  }
  return ToIndex(from.rope_key_positions, "rope_key_positions", to.key_positions);
}

Status ToAlibi(const kvilt_attention_request& from, std::optional<Alibi>& to) {
  if (from.alibi_slopes.rank != 0) {
    to.emplace();
    KVILT_RETURN_IF_ERROR(FromC(from.alibi_slopes, "alibi_slopes", to->slopes));
    return ToEnum(from.alibi_origin, AlibiOrigin::kRowIndex, "alibi_origin", to->origin);
  }
  if (from.alibi_slopes.data != nullptr) {
    return Status::Invalid("alibi_slopes.rank", "0 with data; accepted: 1 [q_heads] or no data");
  }
  return CheckUnused(from.alibi_origin, 0, "alibi_origin", "without alibi_slopes");
}

Status ToOptions(const kvilt_attention_request& from, AttentionRequest& to) {
  KVILT_RETURN_IF_ERROR(ToEnum(from.lse_base, LseBase::kTwo, "lse_base", to.lse_base));
  if (from.has_sm_scale != 0) {
    to.sm_scale = from.sm_scale;
  } else {
    KVILT_RETURN_IF_ERROR(CheckUnused(from.sm_scale, 0.0f, "sm_scale", "with has_sm_scale 0"));
  }
  to.q_scale = from.q_scale;
  to.logits_soft_cap = from.logits_soft_cap;
  KVILT_RETURN_IF_ERROR(ToEnum(from.mask, MaskMode::kTree, "mask", to.mask));
  KVILT_RETURN_IF_ERROR(FromC(from.mask_bits, "mask_bits", to.mask_bits));
  KVILT_RETURN_IF_ERROR(ToIndex(from.mask_indptr, "mask_indptr", to.mask_indptr));
  to.window_left = from.window_left;
  to.window_right = from.window_right;
  KVILT_RETURN_IF_ERROR(ToIndex(from.q_positions, "q_positions", to.q_positions));
  KVILT_RETURN_IF_ERROR(ToAlibi(from, to.alibi));
  to.bias_before_cap = from.bias_before_cap != 0;
  to.kv_settled = from.kv_settled != 0;
  KVILT_RETURN_IF_ERROR(FromC(from.sink, "sink", to.sink));
  if (from.rope == 0) return CheckNoRope(from);
  return ToRope(from, to.rope.emplace());
}

Status CheckNoPageTable(const kvilt_segment& from, const char* field) {
  constexpr std::string_view kWhy = "with KVILT_RAGGED";
  KVILT_RETURN_IF_ERROR(CheckUnused(from.indices, Join(field, "indices"), kWhy));
  KVILT_RETURN_IF_ERROR(
      CheckUnused<std::int64_t>(from.row_stride, 0, Join(field, "row_stride"), kWhy));
  KVILT_RETURN_IF_ERROR(CheckUnused(from.kv_len, Join(field, "kv_len"), kWhy));
  return CheckUnused(from.last_page_len, Join(field, "last_page_len"), kWhy);
}

// The length of an array that a pointer announces.
Status CheckCount(const void* data, std::int64_t count, const std::string& field) {
  if (count < 0 || (count > 0 && data == nullptr)) {
    return Status::Invalid(
        field, fmt::format("{} elements at {}; accepted: an address and a count >= 0, or neither",
                           count, data == nullptr ? "null" : "an address"));
  }
  return {};
}

}  // namespace

Status FromC(const kvilt_tensor& from, const char* field, TensorView& to) {
  to = {};
  if (from.rank < 0 || from.rank > kMaxRank) {
    return Status::Invalid(Join(field, "rank"),
                           fmt::format("{}; accepted: 0 to {}", from.rank, kMaxRank));
  }
  to.data = from.data;
  to.rank = from.rank;
  std::copy_n(from.shape, kMaxRank, to.shape);
  std::copy_n(from.stride, kMaxRank, to.stride);
  KVILT_RETURN_IF_ERROR(ToEnum(from.dtype, DType::kI64, Join(field, "dtype"), to.dtype));
  return ToDevice(from.device_kind, from.device_index, field, to.device);
}

Status FromC(const kvilt_segment* from, const char* field, Segment& to) {
  kvilt_segment c = kvilt_segment_default();
  KVILT_RETURN_IF_ERROR(Adopt(from, field, c));
  CacheSide k;
  CacheSide v;
  KVILT_RETURN_IF_ERROR(ToSide(c.k, Join(field, "k"), k));
  KVILT_RETURN_IF_ERROR(ToSide(c.v, Join(field, "v"), v));
  KVILT_RETURN_IF_ERROR(CheckReserved(c.reserved, Join(field, "reserved")));
  KVILT_RETURN_IF_ERROR(CheckCount(c.owners, c.owner_count, Join(field, "owners")));
  if (c.owner_count > 0) to.owners.assign(c.owners, c.owners + c.owner_count);
  IndexArray indptr;
  KVILT_RETURN_IF_ERROR(ToIndex(c.indptr, Join(field, "indptr"), indptr));
  if (c.kind == KVILT_RAGGED) {
    KVILT_RETURN_IF_ERROR(CheckNoPageTable(c, field));
    to.kv = RaggedKv{k, v, indptr};
    return {};
  }
  if (c.kind != KVILT_PAGED) {
    return Status::Invalid(Join(field, "kind"),
                           fmt::format("{}; accepted: KVILT_PAGED, KVILT_RAGGED", c.kind));
  }
  PageTable table;
  table.indptr = indptr;
  table.row_stride = c.row_stride;
  KVILT_RETURN_IF_ERROR(ToIndex(c.indices, Join(field, "indices"), table.indices));
  KVILT_RETURN_IF_ERROR(ToIndex(c.kv_len, Join(field, "kv_len"), table.kv_len));
  KVILT_RETURN_IF_ERROR(
      ToIndex(c.last_page_len, Join(field, "last_page_len"), table.last_page_len));
  to.kv = PagedKv{k, v, table};
  return {};
}

Status FromC(const kvilt_attention_request* from, AttentionRequest& to) {
  kvilt_attention_request c = kvilt_attention_request_default();
  KVILT_RETURN_IF_ERROR(Adopt(from, "request", c));
  KVILT_RETURN_IF_ERROR(FromC(c.q, "q", to.q));
  KVILT_RETURN_IF_ERROR(FromC(c.q_scales, "q_scales", to.q_scales));
  KVILT_RETURN_IF_ERROR(ToIndex(c.q_indptr, "q_indptr", to.q_indptr));
  KVILT_RETURN_IF_ERROR(CheckCount(c.segments, c.segment_count, "segments"));
  for (std::int64_t i = 0; i < c.segment_count; ++i) {
    KVILT_RETURN_IF_ERROR(FromC(ElementOf(c.segments, i), fmt::format("segments[{}]", i).c_str(),
                                to.segments.emplace_back()));
  }
  KVILT_RETURN_IF_ERROR(FromC(c.out, "out", to.out));
  KVILT_RETURN_IF_ERROR(FromC(c.lse, "lse", to.lse));
  return ToOptions(c, to);
}

Status FromC(const kvilt_device_spec* from, DeviceSpec& to) {
  kvilt_device_spec c = kvilt_device_spec_default();
  KVILT_RETURN_IF_ERROR(Adopt(from, "spec", c));
  to.name.assign(c.name, strnlen(c.name, sizeof(c.name)));
  KVILT_RETURN_IF_ERROR(ToEnum(c.kind, DeviceKind::kCuda, "spec.kind", to.kind));
  KVILT_RETURN_IF_ERROR(ToEnum(c.simd, SimdTarget::kAvx512Bf16, "spec.simd", to.simd));
  to.slots = c.slots;
  to.arch = c.arch;
  to.l2_bytes = c.l2_bytes;
  to.smem_per_block_bytes = c.smem_per_block_bytes;
  to.smem_per_sm_bytes = c.smem_per_sm_bytes;
  to.registers_per_sm = c.registers_per_sm;
  to.read_gb_per_s = c.read_gb_per_s;
  return {};
}

Status FromC(const kvilt_plan_options* from, PlanOptions& to) {
  if (from == nullptr) return {};
  kvilt_plan_options c = kvilt_plan_options_default();
  KVILT_RETURN_IF_ERROR(Adopt(from, "options", c));
  KVILT_RETURN_IF_ERROR(ToEnum(c.split, SplitMode::kOff, "options.split", to.split));
  KVILT_RETURN_IF_ERROR(ToEnum(c.accuracy, Accuracy::kF32, "options.accuracy", to.accuracy));
  to.fixed_split_rows = c.fixed_split_rows;
  to.workspace_limit_bytes = c.workspace_limit_bytes;
  if (c.path != nullptr) to.path = c.path;
  to.allow_cascade = c.no_cascade == 0;
  to.check_pages = c.no_check_pages == 0;
  return {};
}

Status FromC(const kvilt_attention_state* from, const char* field, AttentionState& to) {
  kvilt_attention_state c = kvilt_attention_state_default();
  KVILT_RETURN_IF_ERROR(Adopt(from, field, c));
  KVILT_RETURN_IF_ERROR(FromC(c.out, Join(field, "out").c_str(), to.out));
  KVILT_RETURN_IF_ERROR(FromC(c.lse, Join(field, "lse").c_str(), to.lse));
  to.has_sink = c.has_sink != 0;
  return ToEnum(c.lse_base, LseBase::kTwo, Join(field, "lse_base"), to.lse_base);
}

Status FromC(const kvilt_append_request* from, AppendRequest& to) {
  kvilt_append_request c = kvilt_append_request_default();
  KVILT_RETURN_IF_ERROR(Adopt(from, "request", c));
  KVILT_RETURN_IF_ERROR(CheckReserved(c.reserved, "reserved"));
  KVILT_RETURN_IF_ERROR(FromC(c.k, "k", to.k));
  KVILT_RETURN_IF_ERROR(FromC(c.v, "v", to.v));
  KVILT_RETURN_IF_ERROR(FromC(c.cache, "cache", to.cache));
  KVILT_RETURN_IF_ERROR(ToIndex(c.token_indptr, "token_indptr", to.token_indptr));
  KVILT_RETURN_IF_ERROR(ToIndex(c.slots, "slots", to.slots));
  to.four_over_six = c.four_over_six != 0;
  return {};
}

Status ToC(const DeviceSpec& from, kvilt_device_spec* to) {
  kvilt_device_spec c = kvilt_device_spec_default();
  KVILT_RETURN_IF_ERROR(Adopt(to, "spec", c));  // Whether the size makes sense.
  c = kvilt_device_spec_default();
  from.name.copy(c.name, sizeof(c.name) - 1);
  c.kind = static_cast<std::int32_t>(from.kind);
  c.slots = from.slots;
  c.simd = static_cast<std::int32_t>(from.simd);
  c.arch = from.arch;
  c.l2_bytes = from.l2_bytes;
  c.smem_per_block_bytes = from.smem_per_block_bytes;
  c.smem_per_sm_bytes = from.smem_per_sm_bytes;
  c.registers_per_sm = from.registers_per_sm;
  c.read_gb_per_s = from.read_gb_per_s;
  Return(c, to);
  return {};
}

Status ToC(const Plan& from, kvilt_plan_info* to) {
  kvilt_plan_info c = kvilt_plan_info_default();
  KVILT_RETURN_IF_ERROR(Adopt(to, "info", c));
  c = kvilt_plan_info_default();
  c.workspace_bytes = from.workspace_bytes;
  c.plan_data_bytes = from.plan_data_bytes();
  c.kv_bytes = from.kv_bytes;
  c.flops = from.flops;
  c.items = from.split.items;
  c.max_splits = from.split.max_splits;
  c.merged_rows = from.split.merged_rows;
  c.cascade_items = from.split.cascade_items;
  c.balance = from.split.balance;
  c.lse_has_sink = from.lse_has_sink ? 1 : 0;
  c.lse_base = static_cast<std::int32_t>(from.lse_base);
  Return(c, to);
  return {};
}

}  // namespace kvilt::api
