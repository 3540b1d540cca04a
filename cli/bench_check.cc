#include "cli/bench_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cli/check_problem.h"
#include "cli/terminal.h"
#include "src/oracle/oracle.h"

namespace kvilt::cli {
namespace {

// Fewer (row, head) pairs than this are judged as a single one is.
constexpr std::int64_t kAveragingRows = 16;

void Slice(TensorView& view, int axis, std::int64_t begin, std::int64_t count) {
  if (!view.defined()) return;
  view.data =
      static_cast<std::byte*>(view.data) + begin * view.stride[axis] * StorageBytes(view.dtype);
  view.shape[axis] = count;
}

void SliceSide(CacheSide& side, bool paged, std::int64_t begin, std::int64_t count) {
  const bool nhd = side.layout == KvLayout::kNHD;
  const int axis = paged ? (nhd ? 2 : 1) : (nhd ? 1 : 0);
  Slice(side.data, axis, begin, count);
  Slice(side.scales, axis, begin, count);
  if (side.global.array != nullptr && side.global.array_size > 1) {
    side.global.array += begin;
    side.global.array_size = count;
  }
}

// Infinities and NaN in `count` elements of 2 or 4 bytes whose exponent bits are `exponent`.
template <class Bits>
std::int64_t CountNotFinite(const std::byte* from, std::int64_t count, Bits exponent) {
  std::int64_t found = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, from + i * static_cast<std::int64_t>(sizeof(Bits)), sizeof(Bits));
    found += (bits & exponent) == exponent;
  }
  return found;
}

std::int64_t CountNotFinite(DType dtype, const std::byte* from, std::int64_t count) {
  if (dtype == DType::kF32) return CountNotFinite<std::uint32_t>(from, count, 0x7F800000u);
  const std::uint16_t exponent = dtype == DType::kF16 ? 0x7C00 : 0x7F80;
  return CountNotFinite<std::uint16_t>(from, count, exponent);
}

// Every element of every row that a request owns.
void ScanOutputs(const AttentionRequest& request, std::int64_t rows, SampleCheck& check) {
  const auto at = [](const TensorView& view, std::int64_t row, std::int64_t head) {
    return static_cast<const std::byte*>(view.data) +
           (row * view.stride[0] + head * view.stride[1]) * StorageBytes(view.dtype);
  };
  const TensorView& out = request.out;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t head = 0; head < out.shape[1]; ++head) {
      check.out_not_finite += CountNotFinite(out.dtype, at(out, row, head), out.shape[2]);
      if (!request.lse.defined()) continue;
      float lse;
      std::memcpy(&lse, at(request.lse, row, head), sizeof(lse));
      const bool empty = std::isinf(lse) && lse < 0;
      check.lse_not_finite += !std::isfinite(lse) && !empty;
    }
  }
}

// Errors of several heads as one: the norms over all of them together.
struct HeadErrors {
  oracle::Error worst;  // Of what is a maximum.
  double squares = 0;
  double magnitudes = 0;

  void Add(const AttentionRequest& head, std::int64_t max_rows) {
    const oracle::Reference reference = oracle::Attention(head, max_rows);
    const oracle::Error error = oracle::ErrorAgainst(reference, head);
    double magnitude = 0;
    for (const double m : reference.magnitude) magnitude += m * m;
    magnitudes += magnitude;
    // Without any magnitude the error is 0 or infinite, and never the square of a norm.
    squares += std::isinf(error.rel_l2) ? error.rel_l2 : error.rel_l2 * error.rel_l2 * magnitude;
    worst.lse_excess = std::max(worst.lse_excess, error.lse_excess);
    worst.largest_lse = std::max(worst.largest_lse, error.largest_lse);
  }
  double rel_l2() const { return squares > 0 ? std::sqrt(squares / magnitudes) : 0; }
};

}  // namespace

std::string SampleCheck::Problem() const {
  std::string text;
  const auto add = [&](const std::string& problem) {
    text += (text.empty() ? "" : "; ") + problem;
  };
  if (out_not_finite > 0) add(fmt::format("{} elements of out are not finite", out_not_finite));
  if (lse_not_finite > 0) add(fmt::format("{} elements of lse are not finite", lse_not_finite));
  if (!(rel_l2 <= rel_l2_limit)) {
    add(fmt::format("rel_l2 {}, accepted {}", HumanNumber(rel_l2), HumanNumber(rel_l2_limit)));
  }
  if (!(lse_excess <= 1)) {
    add(fmt::format("lse off by {} of what is accepted", HumanNumber(lse_excess)));
  }
  return text;
}

AttentionRequest KvHeadRange(const AttentionRequest& request, std::int64_t begin,
                             std::int64_t count) {
  AttentionRequest part = request;
  const CacheSide& k = request.segments.front().k();
  const bool paged = request.segments.front().paged() != nullptr;
  const bool nhd = k.layout == KvLayout::kNHD;
  const std::int64_t kv_heads = k.data.shape[paged ? (nhd ? 2 : 1) : (nhd ? 1 : 0)];
  const std::int64_t group = request.q.shape[1] / kv_heads;
  for (Segment& segment : part.segments) {
    const bool segment_paged = segment.paged() != nullptr;
    std::visit(
        [&](auto& cache) {
          SliceSide(cache.k, segment_paged, begin, count);
          SliceSide(cache.v, segment_paged, begin, count);
        },
        segment.kv);
  }
  for (TensorView* view : {&part.q, &part.q_scales, &part.out, &part.lse}) {
    Slice(*view, 1, begin * group, count * group);
  }
  if (part.alibi.has_value()) Slice(part.alibi->slopes, 0, begin * group, count * group);
  Slice(part.sink, 0, begin * group, count * group);
  return part;
}

SampleCheck CheckSample(const AttentionRequest& request, const Plan& plan, double budget,
                        bool averaged) {
  double keys = 0;  // Summed over rows.
  std::int64_t rows = 0;
  for (std::size_t r = 0; r < plan.q_len.size(); ++r) {
    keys += static_cast<double>(plan.q_len[r]) * static_cast<double>(plan.kv_len[r]);
    rows += plan.q_len[r];
  }
  const double per_head =
      keys * (plan.head_dim_qk + plan.head_dim_vo) * plan.q_heads / std::max(plan.kv_heads, 1);
  const double work = per_head * plan.kv_heads;
  const double share = std::min(1.0, budget / std::max(work, 1.0));
  const auto max_rows = std::clamp<std::int64_t>(
      static_cast<std::int64_t>(std::ceil(share * static_cast<double>(rows))),
      std::min<std::int64_t>(rows, 2), std::max<std::int64_t>(rows, 1));
  const double row_work =
      work * static_cast<double>(max_rows) / static_cast<double>(std::max<std::int64_t>(1, rows));
  const auto heads = std::clamp<std::int64_t>(
      static_cast<std::int64_t>(budget / std::max(row_work, 1.0) * plan.kv_heads),
      std::min<std::int64_t>(plan.kv_heads, 2), plan.kv_heads);

  SampleCheck check;
  ScanOutputs(request, rows, check);
  HeadErrors errors;
  for (std::int64_t i = 0; i < heads; ++i) {
    const std::int64_t head = heads == 1 ? 0 : i * (plan.kv_heads - 1) / (heads - 1);
    errors.Add(KvHeadRange(request, head, 1), max_rows < rows ? max_rows : 0);
  }
  check.rel_l2 = errors.rel_l2();
  check.lse_excess = errors.worst.lse_excess;
  check.rows = max_rows;
  check.q_heads = heads * plan.q_heads / std::max(plan.kv_heads, 1);
  const bool enough = check.rows * check.q_heads >= kAveragingRows;
  check.rel_l2_limit = ToleranceOf(plan, request.out.dtype, averaged && enough).total(errors.worst);
  return check;
}

}  // namespace kvilt::cli
