#include "cli/bench_check.h"

#include <algorithm>
#include <cmath>

#include "cli/check_problem.h"
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

}  // namespace

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
      static_cast<std::int64_t>(budget / std::max(row_work, 1.0) * plan.kv_heads), 1,
      plan.kv_heads);

  const AttentionRequest part = KvHeadRange(request, plan.kv_heads - heads, heads);
  const oracle::Error error = oracle::ErrorAgainst(part, max_rows < rows ? max_rows : 0);
  SampleCheck check;
  check.rel_l2 = error.rel_l2;
  check.lse_excess = error.lse_excess;
  check.rows = max_rows;
  check.q_heads = heads * plan.q_heads / std::max(plan.kv_heads, 1);
  const bool enough = check.rows * check.q_heads >= kAveragingRows;
  check.rel_l2_limit = ToleranceOf(plan, request.out.dtype, averaged && enough).total(error);
  return check;
}

}  // namespace kvilt::cli
