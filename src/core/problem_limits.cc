#include "src/core/problem_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "kvilt/dtype.h"
#include "src/core/check.h"

namespace kvilt::core {
namespace {

// Rows before the first and behind the last of a ragged cache.
constexpr double kRaggedMargin = 16;

Status CheckSum(std::string_view word, const std::vector<std::int64_t>& lengths,
                std::int64_t limit) {
  std::int64_t left = limit;
  for (const std::int64_t length : lengths) {
    if (length > left) {
      return Status::Invalid(std::string(word),
                             fmt::format("expected at most {} in a batch", limit));
    }
    left -= length;
  }
  return {};
}

// Rows of the table of a segment with their lengths: one per request, or one that owners share.
std::vector<std::int64_t> TableRows(const Problem& problem, std::size_t segment) {
  if (!problem.segments.empty() && !problem.segments[segment].owners.empty()) {
    return {problem.segments[segment].length};
  }
  std::vector<std::int64_t> rows;
  for (std::int64_t r = 0; r < problem.batch(); ++r) {
    rows.push_back(SegmentLength(problem, r, static_cast<std::int64_t>(segment)));
  }
  return rows;
}

std::size_t SegmentCount(const Problem& problem) {
  return std::max<std::size_t>(problem.segments.size(), 1);
}

// The segment's own values, or the problem's.
SegmentSpec Settled(const Problem& problem, std::size_t segment) {
  SegmentSpec spec;
  if (!problem.segments.empty()) spec = problem.segments[segment];
  spec.k_dtype = spec.k_dtype.value_or(problem.k.dtype);
  spec.v_dtype = spec.v_dtype.value_or(problem.v.dtype);
  spec.cache = spec.cache.value_or(problem.cache);
  spec.page_size = spec.page_size.value_or(problem.page_size);
  return spec;
}

Status CheckTables(const Problem& problem) {
  std::int64_t entries = 0;
  for (std::size_t s = 0; s < SegmentCount(problem); ++s) {
    const SegmentSpec spec = Settled(problem, s);
    if (*spec.cache == CacheKind::kRagged) continue;
    const std::vector<std::int64_t> rows = TableRows(problem, s);
    std::int64_t longest = 0;
    std::int64_t pages = 0;
    for (const std::int64_t length : rows) {
      const std::int64_t of_row = length / *spec.page_size + (length % *spec.page_size != 0);
      longest = std::max(longest, of_row);
      pages += of_row;
    }
    const bool padded = problem.table == TableForm::kPadded;
    entries += padded ? (longest + 1) * static_cast<std::int64_t>(rows.size()) : pages;
    if (entries > kMaxTableEntries) {
      return Status::Invalid(
          fmt::format("page={}", *spec.page_size),
          fmt::format("page tables of {} entries, expected at most {}: larger pages, fewer keys or "
                      "cache=ragged",
                      entries, kMaxTableEntries));
    }
  }
  return {};
}

double Sum(const std::vector<std::int64_t>& values) {
  double sum = 0;
  for (const std::int64_t value : values) sum += static_cast<double>(value);
  return sum;
}

// Whether every index array holds its values.
Status CheckIndexWidth(const Problem& problem) {
  if (problem.index == DType::kI64) return {};
  auto largest =
      static_cast<double>(*std::max_element(problem.kv_len.begin(), problem.kv_len.end()));
  for (std::size_t s = 0; s < SegmentCount(problem); ++s) {
    if (*Settled(problem, s).cache != CacheKind::kRagged) continue;
    largest = std::max(largest, Sum(TableRows(problem, s)) + kRaggedMargin);
  }
  const auto position = [&](const PositionSpec& spec) {
    const auto value = static_cast<double>(spec.value);
    const bool offset = spec.kind == PositionSpec::Kind::kOffset;
    largest = std::max(largest, std::fabs(value) + (offset ? largest : 0));
  };
  if (problem.rope) position(problem.rope->key_positions);
  position(problem.q_positions);
  if (largest <= std::numeric_limits<std::int32_t>::max()) return {};
  return Status::Invalid(
      "index=i32",
      fmt::format("lengths or positions up to {:.0f}, expected index=i64 for them", largest));
}

Status CheckMask(const Problem& problem) {
  const bool custom = problem.mask == MaskMode::kCustom;
  if (!custom && problem.mask != MaskMode::kTree) {
    if (!problem.mask_indptr) return {};
    return Status::Invalid("mask_indptr",
                           "would do nothing: expected mask=custom or mask=tree, the masks that "
                           "have bits");
  }
  double bits = 0;
  for (std::size_t r = 0; r < problem.q_len.size(); ++r) {
    const std::int64_t columns = custom ? problem.kv_len[r] : problem.q_len[r];
    bits += static_cast<double>(problem.q_len[r]) * static_cast<double>(columns);
  }
  if (bits <= static_cast<double>(kMaxMaskBits)) return {};
  return Status::Invalid(
      "mask", fmt::format("{:.3g} mask bits, expected at most {} in a batch", bits, kMaxMaskBits));
}

double RowBytes(DType dtype, std::int64_t head_dim) {
  const std::int64_t scales = dtype == DType::kNVFP4 ? head_dim / kBlockElements : 0;
  return static_cast<double>(RowElements(dtype, head_dim) * StorageBytes(dtype) + scales);
}

// Without padding and page tails: not more than what is really allocated.
double OperandBytes(const Problem& problem) {
  double bytes = 0;
  for (std::size_t s = 0; s < SegmentCount(problem); ++s) {
    const SegmentSpec spec = Settled(problem, s);
    bytes += Sum(TableRows(problem, s)) * problem.kv_heads *
             (RowBytes(*spec.k_dtype, problem.head_dim_qk) +
              RowBytes(*spec.v_dtype, problem.head_dim_vo));
  }
  return bytes + (Sum(problem.q_len) + static_cast<double>(problem.extra_rows)) * problem.q_heads *
                     (RowBytes(problem.q_dtype, problem.head_dim_qk) +
                      RowBytes(problem.out_dtype, problem.head_dim_vo));
}

}  // namespace

Status CheckProblemLimits(const Problem& problem) {
  KVILT_RETURN_IF_ERROR(CheckSum("kv", problem.kv_len, kMaxProblemKeys));
  KVILT_RETURN_IF_ERROR(CheckSum("q", problem.q_len, kMaxProblemRows));
  if (problem.lengths == LengthForm::kLastPageLen && problem.table == TableForm::kPadded) {
    return Status::Invalid("lengths=last_page_len",
                           "would do nothing beside table=padded: expected table=csr");
  }
  const auto given = [](const PositionSpec& spec) {
    return spec.kind != PositionSpec::Kind::kNone;
  };
  if (problem.rope && given(problem.rope->key_positions)) {
    KVILT_RETURN_IF_ERROR(CheckSum("kv with key_positions", problem.kv_len, kMaxTableEntries));
  }
  if (given(problem.q_positions)) {
    KVILT_RETURN_IF_ERROR(CheckSum("q with q_positions", problem.q_len, kMaxTableEntries));
  }
  KVILT_RETURN_IF_ERROR(CheckIndexWidth(problem));
  KVILT_RETURN_IF_ERROR(CheckTables(problem));
  return CheckMask(problem);
}

Status CheckProblemMemory(const Problem& problem, std::int64_t available_bytes) {
  const double needed = OperandBytes(problem);
  if (available_bytes <= 0 || needed <= static_cast<double>(available_bytes)) return {};
  return Status::Exhausted(
      "problem", fmt::format("caches, q and out need {:.3g} GB of memory, this machine has {:.3g} "
                             "GB to spare",
                             needed * 1e-9, static_cast<double>(available_bytes) * 1e-9));
}

}  // namespace kvilt::core
