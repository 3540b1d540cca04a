// Which launches a batch makes: one tile for each class of query lengths and pair of K and V
// formats.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "src/core/check.h"
#include "src/plan/cuda/cost.h"
#include "src/plan/cuda/cuda_plan.h"
#include "src/plan/cuda/tile_candidates.h"
#include "src/plan/signature.h"

namespace kvilt::plan::cuda {
namespace {

using contract::CeilDiv;

// Work of one class, roughly: what tiles are weighed by. Exact numbers follow from the tiles.
struct ClassWork {
  bool present = false;
  std::int64_t blocks = 0;
  std::int64_t keys = 0;
};

// kFixed: bits must not follow the batch, so tiles are weighed for this much work.
constexpr ClassWork kNominalWork = {true, 64, std::int64_t{64} * 8192};

class LaunchChooser {
 public:
  LaunchChooser(const CudaContext& context, CudaScratch& scratch)
      : context_(context), scratch_(scratch) {}

  Status Choose() {
    FindPairs();
    MeasureClasses();
    scratch_.launch_count = 0;
    scratch_.tiling.by_class = true;
    scratch_.tiling.group = context_.dims.group();
    scratch_.tiling.rows.fill(1);
    for (int c = 0; c < kRowClasses; ++c) {
      if (work_[static_cast<std::size_t>(c)].present) KVILT_RETURN_IF_ERROR(ChooseClass(c));
    }
    return {};
  }

  // Launches as planned before; tiles stay, estimates follow the device.
  Status Restore(const PlanDataView& view) {
    FindPairs();
    scratch_.launch_count = 0;
    scratch_.cascade_rows = 0;
    scratch_.tiling.by_class = true;
    scratch_.tiling.group = context_.dims.group();
    scratch_.tiling.rows.fill(0);
    for (const contract::LaunchInfo& info : view.launches) {
      const contract::TileShape& tile = info.tile;
      const bool any = tile.k_format == contract::kAnyFormat;
      const int formats = any ? kAnyFormats : PairOf(tile);
      TileQuery query = QueryFor(info.row_class, kNominalWork, tile.k_format, tile.v_format);
      AddLayout(query, formats);
      const bool narrower = CopyBytes(query, tile) < tile.copy_bytes ||
                            (tile.bulk_copy && !ReadsStretches(query, tile));
      if (narrower) {
        return Status::Precondition(
            "segments",
            fmt::format("base or strides allow copies of {} bytes, the plan's tile makes "
                        "{}; plan again",
                        CopyBytes(query, tile), tile.copy_bytes));
      }
      Push(info.row_class, formats, info.cascade != 0, query,
           {tile, EstimateTile(query, tile, context_.spec)});
      if (info.cascade) {
        scratch_.cascade_rows = std::max<std::int64_t>(
            scratch_.cascade_rows, RowsOf(info.row_class) / context_.dims.group());
      }
    }
    for (std::size_t l = 0; l < scratch_.launch_count; ++l) {
      const int c = scratch_.launches[l].row_class;
      if (!scratch_.launches[l].cascade && scratch_.tiling.RowsOf(c) == 0) SetRows(c, l);
    }
    return CheckClasses();
  }

  std::int64_t ChooseCascades() {
    // kFixed: another tile for shared keys would let a row's bits depend on who shares them.
    if (context_.options.split != SplitMode::kAuto || !context_.options.allow_cascade) return 0;
    for (std::size_t l = 0; l < scratch_.launch_count; ++l) {
      if (scratch_.launches[l].slices > 1 || scratch_.launches[l].formats == kAnyFormats) return 0;
    }
    // The widest class whose tile holds all of its rows, for every shared segment; and the narrower
    // ones for the groups that come out smaller.
    for (int widest = kRowClasses - 1; widest >= 0; --widest) {
      const std::int64_t rows = RowsOf(widest) / context_.dims.group();
      if (rows < 2) return 0;
      const std::size_t before = scratch_.launch_count;
      bool fits = true;
      for (int c = 0; c <= widest && fits; ++c) {
        if (RowsOf(c) < 2 * context_.dims.group()) continue;
        for (std::size_t s = 0; s < context_.request.segments.size() && fits; ++s) {
          if (context_.request.segments[s].owners.size() > 1) fits = AddCascade(c, s);
        }
      }
      if (fits) return rows;
      scratch_.launch_count = before;
    }
    return 0;
  }

 private:
  static int RowsOf(int row_class) { return kClassRows[static_cast<std::size_t>(row_class)]; }

  int PairOf(const contract::TileShape& tile) const {
    for (std::size_t p = 0; p < scratch_.pairs.size(); ++p) {
      if (scratch_.pairs[p].k == tile.k_format && scratch_.pairs[p].v == tile.v_format) {
        return static_cast<int>(p);
      }
    }
    KVILT_CHECK(false);  // dtypes were compared.
    return 0;
  }

  // Every request's rows need a launch of their class.
  Status CheckClasses() {
    for (std::int64_t r = 0; r < context_.geometry.batch; ++r) {
      const std::int64_t q_len = context_.geometry.q_len(r);
      if (q_len == 0 || scratch_.tiling.RowsOf(scratch_.tiling.ClassOf(q_len)) > 0) continue;
      return Status::Precondition(
          "q_indptr",
          fmt::format("request {} has {} query rows, the plan has no launch for so many; "
                      "plan again",
                      r, q_len));
    }
    for (std::int64_t& rows : scratch_.tiling.rows) rows = std::max<std::int64_t>(1, rows);
    return {};
  }

  void FindPairs() {
    scratch_.pairs.clear();
    scratch_.segment_formats.clear();
    for (const Segment& segment : context_.request.segments) {
      const int k = static_cast<int>(segment.k().data.dtype);
      const int v = static_cast<int>(segment.v().data.dtype);
      const auto found =
          std::find_if(scratch_.pairs.begin(), scratch_.pairs.end(),
                       [&](const CudaScratch::Pair& pair) { return pair.k == k && pair.v == v; });
      scratch_.segment_formats.push_back(static_cast<int>(found - scratch_.pairs.begin()));
      if (found == scratch_.pairs.end()) scratch_.pairs.push_back({k, v});
    }
  }

  // Unsplit rows must read all their segments in one item; so must those without a workspace.
  bool OneTileForAll() const {
    return scratch_.pairs.size() > 1 && (context_.options.split == SplitMode::kOff || any_formats_);
  }

  void MeasureClasses() {
    const RequestGeometry& geometry = context_.geometry;
    const bool causal = geometry.visibility.mask == static_cast<int>(contract::Mask::kCausal);
    const std::int64_t window = geometry.visibility.window_left;
    work_ = {};
    for (std::int64_t r = 0; r < geometry.batch; ++r) {
      const std::int64_t q_len = geometry.q_len(r);
      if (q_len == 0) continue;
      const std::int64_t rows = q_len * context_.dims.group();
      const int c = RowClassOf(rows);
      ClassWork& work = work_[static_cast<std::size_t>(c)];
      work.present = true;
      const std::int64_t blocks = CeilDiv<std::int64_t>(rows, RowsOf(c));
      std::int64_t keys = geometry.kv_len(r);
      if (causal) keys = std::max<std::int64_t>(0, keys - (q_len - 1) / 2);
      if (window >= 0) keys = std::min(keys, window + CeilDiv(q_len, blocks));
      work.blocks += blocks;
      work.keys += blocks * keys;
    }
    // A batch without rows still plans a launch, for the updates to come.
    const bool any =
        std::any_of(work_.begin(), work_.end(), [](const ClassWork& work) { return work.present; });
    if (!any) work_[0] = {true, 0, 0};
    if (context_.options.split != SplitMode::kFixed) return;
    for (ClassWork& work : work_) {
      if (work.present) work = kNominalWork;
    }
  }

  TileQuery QueryFor(int row_class, const ClassWork& work, int k, int v) const {
    TileQuery query;
    query.rows = RowsOf(row_class);
    query.group = context_.dims.group();
    query.kv_heads = context_.dims.kv_heads;
    query.head_dim_qk = context_.dims.head_dim_qk;
    query.head_dim_vo = context_.dims.head_dim_vo;
    query.k_format = k;
    query.v_format = v;
    query.blocks = work.blocks;
    query.keys = work.keys;
    query.family = FamilyOfPath(context_.options.path);
    query.q_parts = QueryParts();
    query.k_parts = context_.request.rope ? 2 : 1;
    return query;
  }

  // Two where the MMA's type may not hold an element of Q: bf16 with rotated rows or f16 ones.
  int QueryParts() const {
    if (context_.request.rope) return 2;
    if (context_.request.q.dtype != DType::kF16) return 1;
    const bool bf16 = std::any_of(scratch_.pairs.begin(), scratch_.pairs.end(),
                                  [](const CudaScratch::Pair& pair) {
                                    return pair.k == static_cast<int>(contract::Format::kBF16);
                                  });
    return bf16 ? 2 : 1;
  }

  // How the segments of these formats lie in memory.
  void AddLayout(TileQuery& query, int formats) const {
    query.page_size = std::int64_t{1} << 40;
    for (std::size_t s = 0; s < context_.request.segments.size(); ++s) {
      if (formats == kAnyFormats || scratch_.segment_formats[s] == formats) {
        AddSegmentLayout(context_.request.segments[s], query);
      }
    }
  }

  // The pair's tile for q_rows at least `least` rows; taken from the asked tile where there is one.
  std::optional<ChosenTile> Tile(TileQuery& query, int formats) {
    const bool pinned = context_.options.split == SplitMode::kFixed;
    if (!pinned) AddLayout(query, formats);
    std::optional<ChosenTile> chosen = ChooseTile(query, context_.spec, context_.options.tile);
    if (!chosen || !pinned) return chosen;
    // What never changes a bit follows the caches after all.
    AddLayout(query, formats);
    internal::SetCopies(query, chosen->tile.bulk_copy != 0, chosen->tile);
    chosen->estimate = EstimateTile(query, chosen->tile, context_.spec);
    return chosen;
  }

  Status ChooseClass(int row_class) {
    const ClassWork& work = work_[static_cast<std::size_t>(row_class)];
    const std::size_t first = scratch_.launch_count;
    if (OneTileForAll()) {
      KVILT_RETURN_IF_ERROR(AddLaunch(row_class, work, kAnyFormats));
    } else {
      for (std::size_t p = 0; p < scratch_.pairs.size(); ++p) {
        KVILT_RETURN_IF_ERROR(AddLaunch(row_class, work, static_cast<int>(p)));
      }
    }
    SetRows(row_class, first);
    return {};
  }

  // All launches of a class share their row blocks, so the narrowest tile says how many rows.
  void SetRows(int row_class, std::size_t first) {
    int q_rows = scratch_.launches[first].tile.q_rows;
    const auto shares = [&](const LaunchDraft& launch) {
      return !launch.cascade && launch.row_class == row_class;
    };
    for (std::size_t l = first; l < scratch_.launch_count; ++l) {
      if (!shares(scratch_.launches[l])) continue;
      q_rows = std::min(q_rows, scratch_.launches[l].tile.q_rows);
    }
    const int group = context_.dims.group();
    scratch_.tiling.rows[static_cast<std::size_t>(row_class)] = std::max(1, q_rows / group);
    for (std::size_t l = first; l < scratch_.launch_count; ++l) {
      if (shares(scratch_.launches[l])) scratch_.launches[l].slices = CeilDiv(group, q_rows);
    }
  }

  Status AddLaunch(int row_class, const ClassWork& work, int formats) {
    const bool any = formats == kAnyFormats;
    const CudaScratch::Pair pair =
        any ? CudaScratch::Pair{contract::kAnyFormat, contract::kAnyFormat}
            : scratch_.pairs[static_cast<std::size_t>(formats)];
    TileQuery query = QueryFor(row_class, work, pair.k, pair.v);
    // A slice of a group is a block of its own, of one KV head.
    query.one_head = context_.dims.group() > kClassRows.back();
    std::optional<ChosenTile> chosen = Tile(query, formats);
    if (chosen && chosen->tile.q_rows < context_.dims.group() && chosen->tile.kv_heads > 1) {
      query.one_head = true;
      chosen = Tile(query, formats);
    }
    if (!chosen) return NoTile(query);
    Push(row_class, formats, false, query, *chosen);
    return {};
  }

  void Push(int row_class, int formats, bool cascade, const TileQuery& query,
            const ChosenTile& chosen) {
    if (scratch_.launch_count == scratch_.launches.size()) scratch_.launches.emplace_back();
    LaunchDraft& launch = scratch_.launches[scratch_.launch_count++];
    launch.row_class = row_class;
    launch.formats = formats;
    launch.cascade = cascade;
    launch.query = query;
    launch.tile = chosen.tile;
    launch.estimate = chosen.estimate;
    launch.slices = 1;
  }

  bool AddCascade(int row_class, std::size_t segment) {
    const int formats = scratch_.segment_formats[segment];
    for (std::size_t l = 0; l < scratch_.launch_count; ++l) {
      const LaunchDraft& launch = scratch_.launches[l];
      if (launch.cascade && launch.row_class == row_class && launch.formats == formats) return true;
    }
    ClassWork work = kNominalWork;
    if (context_.options.split != SplitMode::kFixed) {
      const std::int64_t keys = context_.geometry.segments[segment].lengths[0];
      work = {true, 1, keys};
    }
    const CudaScratch::Pair pair = scratch_.pairs[static_cast<std::size_t>(formats)];
    TileQuery query = QueryFor(row_class, work, pair.k, pair.v);
    query.least_q_rows = RowsOf(row_class);
    const std::optional<ChosenTile> chosen = Tile(query, formats);
    if (!chosen) return false;
    Push(row_class, formats, true, query, *chosen);
    return true;
  }

  // The nearest miss, so that the user can act on it.
  Status NoTile(const TileQuery& query) const {
    std::optional<contract::TileShape> nearest;
    TileCheck nearest_check;
    bool known = context_.options.tile.empty();
    ForEachTile(query, context_.spec, [&](const contract::TileShape& tile) {
      const TileCheck check = CheckTile(query, tile, context_.spec);
      if (!context_.options.tile.empty() && TileName(tile) == context_.options.tile) {
        known = true;
        nearest = tile;
        nearest_check = check;
      }
      if (!context_.options.tile.empty() || check.reason == TileReason::kNotAsked) return;
      const bool smaller = check.reason == TileReason::kSmem &&
                           (!nearest || nearest_check.reason != TileReason::kSmem ||
                            check.need - check.limit < nearest_check.need - nearest_check.limit);
      const bool built =  // A tile that any kernel runs is nearer than one that none does.
          nearest_check.reason == TileReason::kNoKernel && check.reason != TileReason::kNoKernel;
      if (!nearest || smaller || built) {
        nearest = tile;
        nearest_check = check;
      }
    });
    const std::string dims =
        fmt::format("head dims {}/{}, K {}, V {} on {}", query.head_dim_qk, query.head_dim_vo,
                    FormatName(query.k_format), FormatName(query.v_format), context_.spec.name);
    if (!known) {
      return Status::Invalid("options.tile",
                             fmt::format("\"{}\" is no candidate for {}; `kvilt plan --explain` "
                                         "lists them",
                                         context_.options.tile, dims));
    }
    const char* field = !context_.options.tile.empty()   ? "options.tile"
                        : !context_.options.path.empty() ? "options.path"
                                                         : "segments";
    if (nearest && nearest_check.reason == TileReason::kNoKernel) {
      return Status::Unsupported(
          field, fmt::format("{}; accepted: {}", ReasonText(nearest_check, *nearest, context_.spec),
                             BuiltPaths()));
    }
    return Status::Unsupported(
        field, nearest
                   ? fmt::format("no tile for {}; nearest is \"{}\": {}", dims, TileName(*nearest),
                                 ReasonText(nearest_check, *nearest, context_.spec))
                   : fmt::format("{} has no candidate for {}", context_.options.path, dims));
  }

  const CudaContext& context_;
  CudaScratch& scratch_;
  std::array<ClassWork, kRowClasses> work_{};
  bool any_formats_ = false;

 public:
  void set_any_formats(bool any) { any_formats_ = any; }
};

}  // namespace

Status ChooseLaunches(const CudaContext& context, bool any_formats, CudaScratch& scratch) {
  LaunchChooser chooser(context, scratch);
  chooser.set_any_formats(any_formats);
  return chooser.Choose();
}

std::int64_t ChooseCascadeLaunches(const CudaContext& context, CudaScratch& scratch) {
  return LaunchChooser(context, scratch).ChooseCascades();
}

Status RestoreLaunches(const CudaContext& context, const PlanDataView& view, CudaScratch& scratch) {
  return LaunchChooser(context, scratch).Restore(view);
}

}  // namespace kvilt::plan::cuda
