#include "cli/inspect/cache_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

namespace kvilt::cli {
namespace {

class TableWalk {
 public:
  TableWalk(const PageTable& table, CacheRows& rows) : table_(table), rows_(rows) {}

  void Run() {
    CheckShapes();
    const std::int64_t count = RowCount();
    for (std::int64_t row = 0; row < count && indptr_good_; ++row) WalkRow(row);
    for (const auto& [page, use] : uses_) {
      rows_.spans.push_back({page, 0, use.rows});
      rows_.pages_used += 1;
      rows_.pages_shared += use.places > 1;
    }
  }

 private:
  struct Use {
    std::int64_t rows = 0;
    std::int64_t places = 0;
  };
  struct Range {
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };

  void Problem(std::string text) {
    if (rows_.problem_count++ < kMaxTableProblems) rows_.problems.push_back(std::move(text));
  }

  const IndexArray& Lengths() const {
    return table_.kv_len.defined() ? table_.kv_len : table_.last_page_len;
  }

  std::int64_t RowCount() const {
    if (table_.indptr.defined()) return std::max<std::int64_t>(0, table_.indptr.size - 1);
    return table_.row_stride > 0 ? table_.indices.size / table_.row_stride : Lengths().size;
  }

  void CheckShapes() {
    const char* name = table_.kv_len.defined() ? "kv_len" : "last_page_len";
    if (Lengths().size != RowCount()) {
      Problem(fmt::format("{} has {} entries, expected {}, one per row of the table", name,
                          Lengths().size, RowCount()));
    }
    if (table_.indptr.defined() && table_.indptr.size > 0 && table_.indptr[0] != 0) {
      Problem(fmt::format("indptr[0] is {}, expected 0", table_.indptr[0]));
    }
  }

  // Entries of `indices` that belong to a row, cut to what is there.
  Range PagesOf(std::int64_t row) {
    if (!table_.indptr.defined()) {
      return {row * table_.row_stride, (row + 1) * table_.row_stride};
    }
    const Range range = {table_.indptr[row], table_.indptr[row + 1]};
    if (range.begin < 0 || range.end < range.begin || range.end > table_.indices.size) {
      Problem(fmt::format(
          "indptr[{}..{}] is {}, {}: expected not to decrease and to stay within the {} indices",
          row, row + 1, range.begin, range.end, table_.indices.size));
      indptr_good_ = false;
      return {};
    }
    return range;
  }

  // Tokens that `pages` pages hold; the largest multiple of the page size where that overflows.
  std::int64_t Capacity(std::int64_t pages) const {
    const std::int64_t most = std::numeric_limits<std::int64_t>::max() / rows_.page_size;
    return std::min(pages, most) * rows_.page_size;
  }

  // Tokens of the row, cut to what its pages hold.
  std::int64_t TokensOf(std::int64_t row, std::int64_t pages) {
    if (row >= Lengths().size) return 0;
    const std::int64_t length = Lengths()[row];
    const std::int64_t page_size = rows_.page_size;
    if (table_.last_page_len.defined()) {
      if (pages == 0) return 0;
      if (length < 1 || length > page_size) {
        Problem(fmt::format("last_page_len[{}] is {}, expected 1..{}", row, length, page_size));
      }
      return Capacity(pages) - page_size + std::clamp<std::int64_t>(length, 0, page_size);
    }
    if (length < 0 || length > Capacity(pages)) {
      Problem(fmt::format("kv_len[{}] is {}, expected 0..{}: the row has {} pages of {}", row,
                          length, Capacity(pages), pages, page_size));
    }
    return std::clamp<std::int64_t>(length, 0, Capacity(pages));
  }

  void WalkRow(std::int64_t row) {
    const Range range = PagesOf(row);
    const std::int64_t tokens = TokensOf(row, range.end - range.begin);
    if (!indptr_good_) return;
    rows_.lengths.push_back(tokens);
    rows_.tokens += tokens;
    std::int64_t left = tokens;
    for (std::int64_t at = range.begin; left > 0; ++at, left -= rows_.page_size) {
      const std::int64_t page = table_.indices[at];
      if (page < 0 || page >= rows_.pages) {
        Problem(fmt::format("indices[{}] is {} (row {}, page {} of it), expected 0..{}", at, page,
                            row, at - range.begin, rows_.pages - 1));
        continue;
      }
      Use& use = uses_[page];
      use.places += 1;
      use.rows = std::max(use.rows, std::min(rows_.page_size, left));
    }
  }

  const PageTable& table_;
  CacheRows& rows_;
  std::map<std::int64_t, Use> uses_;
  bool indptr_good_ = true;
};

void WalkRagged(const IndexArray& indptr, CacheRows& rows) {
  const std::int64_t total = rows.page_size;
  std::int64_t previous = 0;
  for (std::int64_t i = 0; i < indptr.size; ++i) {
    const std::int64_t value = indptr[i];
    if (value < previous || value > total || (i == 0 && value != 0)) {
      rows.problem_count += 1;
      rows.problems.push_back(fmt::format("indptr[{}] is {}, expected {} and at most {} tokens", i,
                                          value, i == 0 ? "0" : fmt::format(">= {}", previous),
                                          total));
      break;
    }
    if (i > 0) rows.lengths.push_back(value - previous);
    previous = value;
  }
  rows.tokens = previous;
  rows.pages_used = previous > 0;
  if (previous > 0) rows.spans.push_back({0, 0, previous});
}

}  // namespace

CacheRows RowsOf(const Segment& segment) {
  CacheRows rows;
  const CacheSide& k = segment.k();
  const bool hnd = k.layout == KvLayout::kHND;
  if (const PagedKv* paged = segment.paged()) {
    rows.pages = k.data.shape[0];
    rows.page_size = k.data.shape[hnd ? 2 : 1];
    TableWalk(paged->table, rows).Run();
  } else {
    rows.pages = 1;
    rows.page_size = k.data.shape[hnd ? 1 : 0];
    WalkRagged(segment.ragged()->indptr, rows);
  }
  return rows;
}

}  // namespace kvilt::cli
