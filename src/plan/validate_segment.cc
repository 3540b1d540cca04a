#include "src/plan/validate_segment.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/core/check.h"

namespace kvilt::plan {
namespace {

constexpr float kLeastGlobal = 0x1p-100f;
constexpr float kMostGlobal = 0x1p100f;
constexpr float kLeastUsual = 0x1p-20f;
constexpr float kMostUsual = 64.0f;
constexpr std::int64_t kRowLimit = std::int64_t{1} << 40;  // Far beyond every legal row.

// Axis positions of a side's tensors. Ragged tensors have no page axis.
struct Axes {
  int rank = 0;
  int page = -1;
  int token = 0;
  int head = 0;
};

Axes AxesOf(bool paged, KvLayout layout) {
  const bool nhd = layout == KvLayout::kNHD;
  if (paged) return {4, 0, nhd ? 1 : 2, nhd ? 2 : 1};
  return {3, -1, nhd ? 0 : 1, nhd ? 1 : 0};
}

TensorRule RuleOf(const Axes& axes, std::int64_t pages, std::int64_t tokens, std::int64_t heads,
                  std::int64_t row) {
  TensorRule rule;
  rule.rank = axes.rank;
  const auto set = [&](int dim, std::int64_t extent, std::string_view name) {
    rule.shape[dim] = extent;
    rule.axes[dim] = name;
  };
  if (axes.page >= 0) set(axes.page, pages, "pages");
  set(axes.token, tokens, axes.page >= 0 ? "page_size" : "total");
  set(axes.head, heads, "kv_heads");
  set(axes.rank - 1, row, "row");
  return rule;
}

struct SideNames {
  std::string_view data;
  std::string_view scales;
  std::string_view scale_layout;
  std::string_view scale_row_blocks;
  std::string_view layout;
  std::string_view global;
};
constexpr SideNames kKNames = {"k.data",   "k.scales", "k.scale_layout", "k.scale_row_blocks",
                               "k.layout", "k.global"};
constexpr SideNames kVNames = {"v.data",   "v.scales", "v.scale_layout", "v.scale_row_blocks",
                               "v.layout", "v.global"};

struct SideGeometry {
  std::int64_t pages = 1;
  std::int64_t page_size = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
};

class SideChecker {
 public:
  SideChecker(const CacheSide& side, bool is_v, bool paged, DeviceKind device, bool addressed,
              std::string_view field)
      : side_(side),
        names_(is_v ? kVNames : kKNames),
        is_v_(is_v),
        paged_(paged),
        device_(device),
        addressed_(addressed),
        field_(field) {}

  Result<SideGeometry> Check() {
    KVILT_RETURN_IF_ERROR(CheckEnums());
    axes_ = AxesOf(paged_, side_.layout);
    SideGeometry geometry;
    KVILT_RETURN_IF_ERROR(CheckData(geometry));
    KVILT_RETURN_IF_ERROR(CheckScales(geometry));
    KVILT_RETURN_IF_ERROR(CheckScaleLayout(geometry));
    KVILT_RETURN_IF_ERROR(
        CheckDecodeScale(side_.global, geometry.kv_heads, device_, At(names_.global)));
    return geometry;
  }

 private:
  FieldPath At(std::string_view name) const { return {field_, name}; }
  bool nvfp4() const { return side_.data.dtype == DType::kNVFP4; }

  Status CheckEnums() const {
    if (side_.layout != KvLayout::kNHD && side_.layout != KvLayout::kHND) {
      return Status::Invalid(At(names_.layout).str(), fmt::format("{}, expected kNHD or kHND",
                                                                  static_cast<int>(side_.layout)));
    }
    if (side_.scale_layout != ScaleLayout::kLinear &&
        side_.scale_layout != ScaleLayout::kInterleaved4) {
      return Status::Invalid(At(names_.scale_layout).str(),
                             fmt::format("{}, expected kLinear or kInterleaved4",
                                         static_cast<int>(side_.scale_layout)));
    }
    return {};
  }

  Status CheckData(SideGeometry& geometry) const {
    const FieldPath path = At(names_.data);
    const TensorView& data = side_.data;
    if (data.defined()) {
      if (device_ == DeviceKind::kCpu) {
        KVILT_RETURN_IF_ERROR(CheckDType(
            data,
            {DType::kF32, DType::kBF16, DType::kF16, DType::kE4M3, DType::kE5M2, DType::kNVFP4},
            path));
      } else {
        KVILT_RETURN_IF_ERROR(CheckDType(
            data, {DType::kBF16, DType::kF16, DType::kE4M3, DType::kE5M2, DType::kNVFP4}, path));
      }
    }
    const TensorRule rule = RuleOf(axes_, kAnyExtent, kAnyExtent, kAnyExtent, kAnyExtent);
    KVILT_RETURN_IF_ERROR(CheckTensor(data, rule, device_, path));
    if (axes_.page >= 0) geometry.pages = data.shape[axes_.page];
    geometry.page_size = data.shape[axes_.token];
    geometry.kv_heads = data.shape[axes_.head];
    geometry.head_dim = std::min(data.shape[axes_.rank - 1], kRowLimit) * (nvfp4() ? 2 : 1);
    KVILT_RETURN_IF_ERROR(CheckSizes(geometry, path));
    return addressed_ ? CheckAddressed(data, path) : Status();
  }

  Status CheckSizes(const SideGeometry& geometry, FieldPath path) const {
    if (paged_ && geometry.page_size < 1) {
      return Status::Invalid(path.str(fmt::format(".shape[{}]", axes_.token)),
                             fmt::format("page_size {}, expected >= 1", geometry.page_size));
    }
    if (geometry.kv_heads < 1 || geometry.kv_heads > kMaxHeads) {
      return Status::Invalid(
          path.str(fmt::format(".shape[{}]", axes_.head)),
          fmt::format("{} KV heads, expected 1..{}", geometry.kv_heads, kMaxHeads));
    }
    const std::string suffix = fmt::format("{}.shape[{}]", path.name, axes_.rank - 1);
    return CheckHeadDim(side_.data.dtype, geometry.head_dim, device_, {path.prefix, suffix});
  }

  Status CheckScales(const SideGeometry& geometry) const {
    const FieldPath path = At(names_.scales);
    if (!nvfp4()) {
      if (!side_.scales.defined() && side_.scales.data == nullptr) return {};
      return Status::Invalid(path.str(), fmt::format("given for a {} cache, expected none: only "
                                                     "nvfp4 has block scales",
                                                     Name(side_.data.dtype)));
    }
    if (!side_.scales.defined()) {
      return Status::Invalid(path.str(),
                             "not given, expected e4m3 block scales: the cache is "
                             "nvfp4");
    }
    KVILT_RETURN_IF_ERROR(CheckDType(side_.scales, {DType::kE4M3}, path));
    const TensorRule rule = RuleOf(axes_, geometry.pages, geometry.page_size, geometry.kv_heads,
                                   geometry.head_dim / kBlockElements);
    KVILT_RETURN_IF_ERROR(CheckTensor(side_.scales, rule, device_, path));
    return addressed_ ? CheckAddressed(side_.scales, path) : Status();
  }

  Status CheckScaleLayout(const SideGeometry& geometry) const {
    const FieldPath layout = At(names_.scale_layout);
    const FieldPath row_blocks = At(names_.scale_row_blocks);
    if (side_.scale_layout == ScaleLayout::kLinear) {
      if (side_.scale_row_blocks == 0) return {};
      return Status::Invalid(
          row_blocks.str(),
          fmt::format("{}, expected 0: linear scales do not use it", side_.scale_row_blocks));
    }
    if (!is_v_) {
      return Status::Invalid(layout.str(),
                             "kInterleaved4, expected kLinear: only V may be "
                             "interleaved");
    }
    if (!nvfp4()) {
      return Status::Invalid(layout.str(), fmt::format("kInterleaved4 for a {} cache, expected "
                                                       "kLinear: it has no block scales",
                                                       Name(side_.data.dtype)));
    }
    const std::int64_t blocks = geometry.head_dim / kBlockElements;
    if (geometry.page_size % 4 != 0) {
      return Status::Invalid(layout.str(),
                             fmt::format("kInterleaved4 with {} {}, expected a multiple of 4",
                                         paged_ ? "page_size" : "total", geometry.page_size));
    }
    if (blocks % 4 != 0) {
      return Status::Invalid(layout.str(),
                             fmt::format("kInterleaved4 with head_dim {} ({} scales per row), "
                                         "expected a multiple of 64",
                                         geometry.head_dim, blocks));
    }
    if (side_.scale_row_blocks != blocks) {
      return Status::Invalid(row_blocks.str(),
                             fmt::format("{}, expected {} = head_dim / 16: interleaved scales "
                                         "cannot be sliced",
                                         side_.scale_row_blocks, blocks));
    }
    return {};
  }

  const CacheSide& side_;
  const SideNames& names_;
  const bool is_v_;
  const bool paged_;
  const DeviceKind device_;
  const bool addressed_;
  const std::string_view field_;
  Axes axes_;
};

bool IsAccepted(float value, bool allow_unusual) {
  return allow_unusual ? value >= kLeastGlobal && value <= kMostGlobal
                       : value >= kLeastUsual && value <= kMostUsual;
}

Status CheckGlobalValue(float value, bool allow_unusual, const std::string& field) {
  if (!(value >= kLeastGlobal && value <= kMostGlobal)) {
    return Status::Invalid(
        field, fmt::format("{}, expected a finite multiplier in [2^-100, 2^100]", value));
  }
  if (!allow_unusual && (value < kLeastUsual || value > kMostUsual)) {
    return Status::Invalid(field,
                           fmt::format("{}, expected [2^-20, 64]; is it a reciprocal? value "
                                       "= stored * global (allow_unusual admits it; in problem "
                                       "texts and files allow_unusual_scale)",
                                       value));
  }
  return {};
}

Status CheckAgreement(const SideGeometry& k, const SideGeometry& v, std::string_view field) {
  const auto differ = [&](std::string_view what, std::int64_t of_k, std::int64_t of_v) {
    return Status::Invalid(FieldPath{field, "v.data.shape"}.str(),
                           fmt::format("{} {}, expected {} as in k.data", what, of_v, of_k));
  };
  if (k.kv_heads != v.kv_heads) return differ("kv_heads", k.kv_heads, v.kv_heads);
  if (k.pages != v.pages) return differ("pages", k.pages, v.pages);
  if (k.page_size != v.page_size) return differ("page_size or total", k.page_size, v.page_size);
  std::int64_t tokens = 0;
  if (!Multiply(k.pages, k.page_size, tokens)) {
    return Status::Invalid(
        FieldPath{field, "k.data.shape"}.str(),
        fmt::format("{} pages of {} tokens overflow 64 bits", k.pages, k.page_size));
  }
  return {};
}

Status CheckOwners(const Segment& segment, std::int64_t batch, std::string_view field) {
  std::int64_t previous = -1;
  for (std::size_t i = 0; i < segment.owners.size(); ++i) {
    const std::int64_t owner = segment.owners[i];
    if (owner <= previous || (batch != kAnyExtent && owner >= batch)) {
      const std::string accepted =
          batch == kAnyExtent ? fmt::format("a request behind {}", previous)
          : previous + 1 < batch
              ? fmt::format("a request in {}..{} (strictly increasing)", previous + 1, batch - 1)
              : fmt::format("no further owner in a batch of {}", batch);
      return Status::Invalid(FieldPath{field, "owners"}.str(fmt::format("[{}]", i)),
                             fmt::format("{}, expected {}", owner, accepted));
    }
    previous = owner;
  }
  return {};
}

bool AnyToken(const std::vector<std::int64_t>& lengths) {
  for (std::int64_t length : lengths) {
    if (length > 0) return true;
  }
  return false;
}

}  // namespace

Status CheckHeadDim(DType dtype, std::int64_t head_dim, DeviceKind device, FieldPath field) {
  const int step = dtype == DType::kNVFP4 || device == DeviceKind::kCuda ? 16 : 8;
  if (head_dim >= step && head_dim <= kMaxHeadDim && head_dim % step == 0) return {};
  return {head_dim > kMaxHeadDim ? StatusCode::kUnsupported : StatusCode::kInvalidArgument,
          field.str(),
          fmt::format("head_dim {} for {}, expected a multiple of {} in {}..{}", head_dim,
                      Name(dtype), step, step, kMaxHeadDim)};
}

Status CheckDecodeScale(const DecodeScale& scale, std::int64_t kv_heads, DeviceKind device,
                        FieldPath field) {
  if (scale.array == nullptr) {
    if (scale.array_size != 0) {
      return Status::Invalid(
          field.str(".array"),
          fmt::format("null with array_size {}, expected an array or size 0", scale.array_size));
    }
    if (IsAccepted(scale.value, scale.allow_unusual)) return {};
    return CheckGlobalValue(scale.value, scale.allow_unusual, field.str(".value"));
  }
  if (scale.value != 1.0f) {
    return Status::Invalid(
        field.str(".value"),
        fmt::format("{} beside an array, expected 1: only one of them is used", scale.value));
  }
  if (scale.array_size != 1 && scale.array_size != kv_heads) {
    return Status::Invalid(field.str(".array_size"), fmt::format("{}, expected 1 or {} (KV heads)",
                                                                 scale.array_size, kv_heads));
  }
  if (reinterpret_cast<std::uintptr_t>(scale.array) % sizeof(float) != 0) {
    return Status::Invalid(field.str(".array"), "misaligned, expected a multiple of 4");
  }
  KVILT_RETURN_IF_ERROR(CheckDeviceIndex(scale.device, field));
  if (scale.device.kind != DeviceKind::kCpu) {
    if (device == scale.device.kind) return {};
    return Status::Invalid(field.str(".device"), "cuda, expected cpu: the device of the plan");
  }
  for (std::int64_t i = 0; i < scale.array_size; ++i) {
    const float value = scale.array[i];
    if (IsAccepted(value, scale.allow_unusual)) continue;
    KVILT_RETURN_IF_ERROR(
        CheckGlobalValue(value, scale.allow_unusual, field.str(fmt::format(".array[{}]", i))));
  }
  return {};
}

Result<SegmentGeometry> CheckSides(const Segment& segment, DeviceKind device, bool addressed,
                                   std::string_view field) {
  const bool paged = segment.paged() != nullptr;
  Result<SideGeometry> k = SideChecker(segment.k(), false, paged, device, addressed, field).Check();
  if (!k.ok()) return k.status();
  Result<SideGeometry> v = SideChecker(segment.v(), true, paged, device, addressed, field).Check();
  if (!v.ok()) return v.status();
  KVILT_RETURN_IF_ERROR(CheckAgreement(*k, *v, field));
  SegmentGeometry geometry;
  geometry.paged = paged;
  geometry.kv_heads = static_cast<int>(k->kv_heads);
  geometry.head_dim_k = static_cast<int>(k->head_dim);
  geometry.head_dim_v = static_cast<int>(v->head_dim);
  geometry.pages = k->pages;
  geometry.page_size = k->page_size;
  return geometry;
}

Status CheckCacheAddressed(const Segment& segment, std::string_view field) {
  const auto check = [field](const TensorView& tensor, std::string_view name) {
    return tensor.defined() ? CheckAddressed(tensor, {field, name}) : Status();
  };
  KVILT_RETURN_IF_ERROR(check(segment.k().data, "k.data"));
  KVILT_RETURN_IF_ERROR(check(segment.k().scales, "k.scales"));
  KVILT_RETURN_IF_ERROR(check(segment.v().data, "v.data"));
  return check(segment.v().scales, "v.scales");
}

Status WalkTable(const Segment& segment, const SegmentGeometry& geometry, std::int64_t rows,
                 DeviceKind device, bool check_pages, std::string_view field,
                 const LengthVisitor& visit) {
  if (geometry.paged) {
    return WalkPageTable(segment.paged()->table, rows, geometry.pages, geometry.page_size, device,
                         check_pages, field, visit);
  }
  return WalkRaggedIndptr(segment.ragged()->indptr, rows, geometry.page_size, device, field, visit);
}

Status CheckSegment(const Segment& segment, std::int64_t batch, DeviceKind device, bool check_pages,
                    std::string_view field, SegmentGeometry& geometry) {
  Result<SegmentGeometry> sides = CheckSides(segment, device, false, field);
  if (!sides.ok()) return sides.status();
  sides->lengths = std::move(geometry.lengths);
  sides->lengths.clear();
  geometry = std::move(*sides);
  KVILT_RETURN_IF_ERROR(CheckOwners(segment, batch, field));
  const std::int64_t rows = segment.owners.empty() ? batch : 1;

  std::vector<std::int64_t>& lengths = geometry.lengths;
  if (geometry.paged) {
    KVILT_RETURN_IF_ERROR(PageTableLengths(segment.paged()->table, rows, geometry.pages,
                                           geometry.page_size, device, check_pages, field,
                                           lengths));
  } else {
    const auto keep = [&lengths](std::int64_t, std::int64_t tokens) {
      lengths.push_back(tokens);
      return Status();
    };
    KVILT_RETURN_IF_ERROR(
        WalkTable(segment, geometry, rows, device, check_pages, field, std::cref(keep)));
  }

  if (AnyToken(geometry.lengths)) KVILT_RETURN_IF_ERROR(CheckCacheAddressed(segment, field));
  return {};
}

Result<SegmentGeometry> CheckSegment(const Segment& segment, std::int64_t batch, DeviceKind device,
                                     bool check_pages, std::string_view field) {
  SegmentGeometry geometry;
  KVILT_RETURN_IF_ERROR(CheckSegment(segment, batch, device, check_pages, field, geometry));
  return geometry;
}

}  // namespace kvilt::plan
