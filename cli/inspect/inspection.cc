#include "cli/inspect/inspection.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/inspect/declarations.h"
#include "cli/inspect/side_view.h"
#include "src/core/check.h"

namespace kvilt::cli {
namespace {

double RowBytes(const SideInspection& side) {
  const SideView view(side.side);
  const std::int64_t elements = RowElements(side.side.data.dtype, view.head_dim());
  const bool nvfp4 = side.side.data.dtype == DType::kNVFP4;
  return static_cast<double>(view.heads() * (elements * StorageBytes(side.side.data.dtype) +
                                             (nvfp4 ? view.row_blocks() : 0)));
}

ScaleOrderVerdict Declared(const CacheSide& side) {
  return side.scale_layout == ScaleLayout::kLinear ? ScaleOrderVerdict::kLinear
                                                   : ScaleOrderVerdict::kInterleaved4;
}

void AddSideProblems(const SideInspection& side, std::vector<std::string>& problems) {
  const SideStats& stats = side.stats;
  if (stats.nan > 0) {
    problems.push_back(
        fmt::format("{}: {} of {} elements are NaN", side.name, stats.nan, stats.elements));
  }
  if (stats.infinite > 0)
    problems.push_back(fmt::format("{}: {} elements are infinite", side.name, stats.infinite));
  if (stats.scales.negative > 0) {
    problems.push_back(fmt::format("{}: {} scales are negative, which no writer makes", side.name,
                                   stats.scales.negative));
  }
  const ScaleOrder& order = side.scale_order;
  const bool decided = order.verdict == ScaleOrderVerdict::kLinear ||
                       order.verdict == ScaleOrderVerdict::kInterleaved4;
  if (decided && order.verdict != Declared(side.side)) {
    problems.push_back(fmt::format("{}: scales are declared {} but look {} (by {})", side.name,
                                   Name(Declared(side.side)), Name(order.verdict),
                                   order.decided_by));
  }
}

SideInspection InspectSide(std::string name, const CacheSide& side, const CacheRows& rows,
                           bool paged) {
  SideInspection result;
  result.name = std::move(name);
  result.side = side;
  result.stats = MeasureSide(side, rows.spans);
  if (side.data.dtype == DType::kNVFP4) {
    result.scale_order = MeasureScaleOrder(side, rows.spans, rows.page_size, paged);
  }
  return result;
}

// Requests of the queries in the file; -1 when it has none.
std::int64_t QueryBatch(const core::TensorFile& file) {
  const Result<IndexArray> indptr = file.FindIndex("q_indptr");
  if (indptr.ok() && indptr->defined()) return std::max<std::int64_t>(indptr->size - 1, 0);
  return file.Find("q").defined() ? 1 : -1;
}

}  // namespace

Result<Inspection> Inspect(const core::TensorFile& file) {
  Inspection inspection;
  inspection.path = file.path();
  inspection.tensors = file.tensors();
  inspection.metadata = file.metadata();
  // Results of `kvilt run` have a version but no cache.
  const bool results = file.Find("out").defined() && !file.Find("k.data").defined();
  if (!file.metadata().contains("kvilt.version") || results) return inspection;
  const Result<Segment> segment = core::SegmentOf(file);
  if (!segment.ok()) return segment.status();

  CacheInspection cache;
  cache.paged = segment->paged() != nullptr;
  cache.owners = segment->owners;
  cache.rows = RowsOf(*segment);
  AddDeclarationProblems("k", segment->k(), inspection.problems);
  AddDeclarationProblems("v", segment->v(), inspection.problems);
  AddOwnerProblems(cache.owners, QueryBatch(file),
                   static_cast<std::int64_t>(cache.rows.lengths.size()), inspection.problems);
  if (!SideReadable(segment->k()) || !SideReadable(segment->v())) {
    inspection.cache = std::move(cache);
    return inspection;
  }
  for (const std::string& problem : cache.rows.problems)
    inspection.problems.push_back("table: " + problem);
  if (cache.rows.problem_count > static_cast<std::int64_t>(cache.rows.problems.size())) {
    inspection.problems.push_back(
        fmt::format("table: {} problems in all", cache.rows.problem_count));
  }
  cache.sides.push_back(InspectSide("k", segment->k(), cache.rows, cache.paged));
  cache.sides.push_back(InspectSide("v", segment->v(), cache.rows, cache.paged));
  for (const SideInspection& side : cache.sides) {
    cache.bytes_per_token += RowBytes(side);
    AddSideProblems(side, inspection.problems);
  }
  inspection.cache = std::move(cache);
  return inspection;
}

}  // namespace kvilt::cli
