#include "src/plan/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "src/core/check.h"

namespace kvilt::plan {
namespace {

class RequestChecker {
 public:
  RequestChecker(const AttentionRequest& request, DeviceKind device, bool check_pages,
                 RequestGeometry& geometry)
      : request_(request), device_(device), check_pages_(check_pages), geometry_(geometry) {}

  Status Check() {
    KVILT_RETURN_IF_ERROR(CheckNumbers(request_));
    KVILT_RETURN_IF_ERROR(CheckQuery());
    KVILT_RETURN_IF_ERROR(CheckIndptr());
    KVILT_RETURN_IF_ERROR(CheckSegments());
    KVILT_RETURN_IF_ERROR(AddLengths());
    KVILT_RETURN_IF_ERROR(CheckOutputs());
    KVILT_RETURN_IF_ERROR(CheckMask(request_, device_, geometry_));
    KVILT_RETURN_IF_ERROR(CheckExtras(request_, device_, geometry_));
    return CheckMemory(request_, device_);
  }

 private:
  Status CheckQuery() {
    const FieldPath path{"", "q"};
    const TensorView& q = request_.q;
    if (q.defined()) {
      if (device_ == DeviceKind::kCpu) {
        KVILT_RETURN_IF_ERROR(CheckDType(
            q, {DType::kF32, DType::kBF16, DType::kF16, DType::kE4M3, DType::kNVFP4}, path));
      } else {
        KVILT_RETURN_IF_ERROR(
            CheckDType(q, {DType::kBF16, DType::kF16, DType::kE4M3, DType::kNVFP4}, path));
      }
    }
    const TensorRule rule{
        3, {kAnyExtent, kAnyExtent, kAnyExtent}, {"total_q", "q_heads", "row"}, true};
    KVILT_RETURN_IF_ERROR(CheckTensor(q, rule, device_, path));
    if (q.shape[1] < 1 || q.shape[1] > kMaxHeads) {
      return Status::Invalid("q.shape[1]",
                             fmt::format("{} query heads, expected 1..{}", q.shape[1], kMaxHeads));
    }
    if (q.shape[0] > kMaxLength) {
      return Status::Invalid("q.shape[0]",
                             fmt::format("{} rows, expected <= {}", q.shape[0], kMaxLength));
    }
    const bool nvfp4 = q.dtype == DType::kNVFP4;
    const std::int64_t head_dim = std::min(q.shape[2], kMaxLength) * (nvfp4 ? 2 : 1);
    KVILT_RETURN_IF_ERROR(CheckHeadDim(q.dtype, head_dim, device_, {"", "q.shape[2]"}));
    geometry_.q_heads = static_cast<int>(q.shape[1]);
    geometry_.head_dim_qk = static_cast<int>(head_dim);
    return CheckQueryScales(nvfp4);
  }

  Status CheckQueryScales(bool nvfp4) const {
    const TensorView& scales = request_.q_scales;
    if (!nvfp4) {
      if (!scales.defined() && scales.data == nullptr) return {};
      return Status::Invalid("q_scales", fmt::format("given for a {} query, expected none: only "
                                                     "nvfp4 has block scales",
                                                     Name(request_.q.dtype)));
    }
    if (!scales.defined()) {
      return Status::Invalid("q_scales", "not given, expected e4m3 block scales: q is nvfp4");
    }
    KVILT_RETURN_IF_ERROR(CheckDType(scales, {DType::kE4M3}, {"", "q_scales"}));
    const TensorRule rule{
        3,
        {request_.q.shape[0], request_.q.shape[1], geometry_.head_dim_qk / kBlockElements},
        {"total_q", "q_heads", "head_dim / 16"},
        true};
    return CheckTensor(scales, rule, device_, {"", "q_scales"});
  }

  Status CheckIndptr() {
    const IndexArray& indptr = request_.q_indptr;
    if (!indptr.defined()) {
      return Status::Invalid("q_indptr", "not given, expected a host array of batch + 1 entries");
    }
    KVILT_RETURN_IF_ERROR(CheckIndexArray(indptr, kAnyExtent, true, device_, {"", "q_indptr"}));
    if (indptr.size < 1) {
      return Status::Invalid("q_indptr.size", "0, expected batch + 1, at least 1");
    }
    geometry_.batch = indptr.size - 1;
    if (geometry_.batch > std::numeric_limits<std::int32_t>::max()) {
      return Status::Invalid("q_indptr.size",
                             fmt::format("{} requests, expected <= 2^31 - 1", geometry_.batch));
    }
    if (indptr[0] != 0) {
      return Status::Invalid("q_indptr[0]", fmt::format("{}, expected 0", indptr[0]));
    }
    const std::int64_t total = request_.q.shape[0];
    geometry_.q_begin.resize(static_cast<std::size_t>(indptr.size));
    std::int64_t previous = 0;
    for (std::int64_t i = 0; i < indptr.size; ++i) {
      const std::int64_t begin = indptr[i];
      if (begin < previous) {
        return Status::Invalid(fmt::format("q_indptr[{}]", i),
                               fmt::format("{} after {}, expected not to decrease (request {})",
                                           begin, previous, i - 1));
      }
      if (begin > total) {
        return Status::Invalid(
            fmt::format("q_indptr[{}]", i),
            fmt::format("{}, expected <= {}, the rows of q (request {})", begin, total, i - 1));
      }
      geometry_.q_begin[static_cast<std::size_t>(i)] = begin;
      previous = begin;
    }
    return {};
  }

  Status CheckSegments() {
    if (request_.segments.empty()) {
      return Status::Invalid("segments", "none, expected at least one");
    }
    bool private_seen = false;
    geometry_.segments.resize(request_.segments.size());
    for (std::size_t i = 0; i < request_.segments.size(); ++i) {
      const Segment& segment = request_.segments[i];
      const std::string field = fmt::format("segments[{}]", i);
      SegmentGeometry& checked = geometry_.segments[i];
      KVILT_RETURN_IF_ERROR(
          CheckSegment(segment, geometry_.batch, device_, check_pages_, field, checked));
      if (!segment.owners.empty() && private_seen) {
        return Status::Invalid(field + ".owners",
                               "shared after a private segment, expected shared "
                               "segments first");
      }
      private_seen = private_seen || segment.owners.empty();
      KVILT_RETURN_IF_ERROR(CheckAgreement(checked, field, i == 0));
    }
    return {};
  }

  Status CheckAgreement(const SegmentGeometry& segment, const std::string& field, bool first) {
    if (first) {
      geometry_.kv_heads = segment.kv_heads;
      geometry_.head_dim_vo = segment.head_dim_v;
      if (geometry_.q_heads % segment.kv_heads != 0) {
        return Status::Invalid("q.shape[1]",
                               fmt::format("{} query heads, expected a multiple of "
                                           "{}, the KV heads of {}",
                                           geometry_.q_heads, segment.kv_heads, field));
      }
      geometry_.group = geometry_.q_heads / segment.kv_heads;
    }
    if (segment.kv_heads != geometry_.kv_heads) {
      return Status::Invalid(field + ".k.data.shape",
                             fmt::format("{} KV heads, expected {} as in segments[0]",
                                         segment.kv_heads, geometry_.kv_heads));
    }
    if (segment.head_dim_k != geometry_.head_dim_qk) {
      return Status::Invalid(field + ".k.data.shape",
                             fmt::format("head_dim {}, expected {} as in q", segment.head_dim_k,
                                         geometry_.head_dim_qk));
    }
    if (segment.head_dim_v != geometry_.head_dim_vo) {
      return Status::Invalid(field + ".v.data.shape",
                             fmt::format("head_dim {}, expected {} as in segments[0]",
                                         segment.head_dim_v, geometry_.head_dim_vo));
    }
    return {};
  }

  // segment_begins from the lengths of the segments.
  Status AddLengths() {
    const std::size_t width = request_.segments.size() + 1;
    std::vector<std::int64_t>& begins = geometry_.segment_begins;
    begins.assign(static_cast<std::size_t>(geometry_.batch) * width, 0);
    for (std::size_t s = 0; s + 1 < width; ++s) {
      const std::vector<std::int64_t>& lengths = geometry_.segments[s].lengths;
      const std::vector<std::int32_t>& owners = request_.segments[s].owners;
      std::size_t next_owner = 0;
      for (std::size_t r = 0; r < static_cast<std::size_t>(geometry_.batch); ++r) {
        std::int64_t length = 0;
        if (owners.empty()) {
          length = lengths[r];
        } else if (next_owner < owners.size() && owners[next_owner] == static_cast<int>(r)) {
          length = lengths[0];
          ++next_owner;
        }
        const std::int64_t begin = begins[r * width + s];
        if (length > kMaxLength || begin + length > kMaxLength) {
          return Status::Invalid(fmt::format("segments[{}]", s),
                                 fmt::format("{} tokens after {} of request {}, expected at most "
                                             "{} keys per request",
                                             length, begin, r, kMaxLength));
        }
        begins[r * width + s + 1] = begin + length;
      }
    }
    return {};
  }

  Status CheckOutputs() const {
    const std::int64_t rows = request_.q.shape[0];
    const std::int64_t heads = request_.q.shape[1];
    if (request_.out.defined()) {
      KVILT_RETURN_IF_ERROR(
          CheckDType(request_.out, {DType::kF32, DType::kBF16, DType::kF16}, {"", "out"}));
    }
    const TensorRule out_rule{
        3, {rows, heads, geometry_.head_dim_vo}, {"total_q", "q_heads", "head_dim_vo"}, true};
    KVILT_RETURN_IF_ERROR(CheckTensor(request_.out, out_rule, device_, {"", "out"}));
    if (!request_.lse.defined()) {
      if (request_.lse.data != nullptr) {
        return Status::Invalid("lse.rank", "0 with data, expected 2 [total_q, q_heads] or no data");
      }
      if (request_.lse_base != LseBase::kNatural) {
        return Status::Invalid("lse_base", "kTwo without an lse, expected kNatural or an lse");
      }
      return {};
    }
    KVILT_RETURN_IF_ERROR(CheckDType(request_.lse, {DType::kF32}, {"", "lse"}));
    const TensorRule lse_rule{2, {rows, heads}, {"total_q", "q_heads"}, false};
    return CheckTensor(request_.lse, lse_rule, device_, {"", "lse"});
  }

  const AttentionRequest& request_;
  const DeviceKind device_;
  const bool check_pages_;
  RequestGeometry& geometry_;
};

}  // namespace

Status Validate(const AttentionRequest& request, DeviceKind device, bool check_pages,
                RequestGeometry& geometry) {
  return RequestChecker(request, device, check_pages, geometry).Check();
}

Status CheckPlanOptions(const PlanOptions& options) {
  if (options.split > SplitMode::kOff) {
    return Status::Invalid("options.split", fmt::format("{}, expected kAuto, kFixed or kOff",
                                                        static_cast<int>(options.split)));
  }
  if (options.accuracy > Accuracy::kF32) {
    return Status::Invalid("options.accuracy", fmt::format("{}, expected kNormal, kNearExact or "
                                                           "kF32",
                                                           static_cast<int>(options.accuracy)));
  }
  if (options.split == SplitMode::kFixed && options.fixed_split_rows < 1) {
    return Status::Invalid("options.fixed_split_rows",
                           fmt::format("{} with kFixed, expected >= 1", options.fixed_split_rows));
  }
  if (options.split != SplitMode::kFixed && options.fixed_split_rows != 0) {
    return Status::Invalid("options.fixed_split_rows",
                           fmt::format("{} without kFixed, expected 0", options.fixed_split_rows));
  }
  if (options.workspace_limit_bytes < -1) {
    return Status::Invalid(
        "options.workspace_limit_bytes",
        fmt::format("{}, expected >= 0, or -1 for no limit", options.workspace_limit_bytes));
  }
  return {};
}

}  // namespace kvilt::plan
