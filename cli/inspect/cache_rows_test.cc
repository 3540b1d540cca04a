#include "cli/inspect/cache_rows.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <vector>

namespace kvilt::cli {
namespace {

struct Table {
  std::vector<std::int32_t> indptr, indices, kv_len, last_page_len;
  CacheRows Rows() const {
    static std::uint8_t bytes[64];
    PagedKv cache;
    cache.k.data = TensorView::Dense(bytes, DType::kE4M3, {4, 4, 1, 4});
    cache.v = cache.k;
    cache.table.indptr = std::span<const std::int32_t>(indptr);
    cache.table.indices = std::span<const std::int32_t>(indices);
    if (!kv_len.empty()) cache.table.kv_len = std::span<const std::int32_t>(kv_len);
    if (!last_page_len.empty())
      cache.table.last_page_len = std::span<const std::int32_t>(last_page_len);
    return RowsOf({cache, {}});
  }
};

TEST(CacheRows, EachAddressedRowOnce) {
  const CacheRows rows = Table{{0, 2, 2, 4}, {3, 1, 3, 0}, {6, 0, 7}, {}}.Rows();
  EXPECT_EQ(rows.spans, (std::vector<RowSpan>{{0, 0, 3}, {1, 0, 2}, {3, 0, 4}}));
  EXPECT_EQ(rows.tokens, 13);
  EXPECT_EQ(rows.pages_used, 3);
  EXPECT_EQ(rows.pages_shared, 1);
  EXPECT_TRUE(rows.problems.empty());
}

TEST(CacheRows, ProblemsNameTheirPlace) {
  const auto problem = [](Table table) {
    const CacheRows rows = table.Rows();
    return rows.problems.empty() ? std::string() : rows.problems[0];
  };
  EXPECT_EQ(problem({{0, 2}, {0, 9}, {8}, {}}),
            "indices[1] is 9 (row 0, page 1 of it), expected 0..3");
  EXPECT_EQ(problem({{0, 1}, {0}, {5}, {}}),
            "kv_len[0] is 5, expected 0..4: the row has 1 pages of 4");
  EXPECT_EQ(problem({{0, 1}, {0}, {-1}, {}}),
            "kv_len[0] is -1, expected 0..4: the row has 1 pages of 4");
  EXPECT_EQ(problem({{0, 2, 1}, {0, 1}, {8, 0}, {}}),
            "indptr[1..2] is 2, 1: expected not to decrease and to stay within the 2 indices");
  EXPECT_EQ(problem({{0, 3}, {0, 1}, {8}, {}}),
            "indptr[0..1] is 0, 3: expected not to decrease and to stay within the 2 indices");
  EXPECT_EQ(problem({{0, 1}, {0}, {}, {0}}), "last_page_len[0] is 0, expected 1..4");
  EXPECT_EQ(problem({{0, 1}, {0}, {}, {5}}), "last_page_len[0] is 5, expected 1..4");
  EXPECT_EQ(problem({{0, 1}, {0}, {1, 1}, {}}),
            "kv_len has 2 entries, expected 1, one per row of the table");
  EXPECT_EQ(problem({{0, 1}, {0}, {}, {4}}), "");
}

TEST(CacheRows, AnyTableStaysWithinTheCache) {
  EXPECT_TRUE(rc::check(
      "hostile tables", [](std::vector<std::int32_t> indptr, std::vector<std::int32_t> indices,
                           std::vector<std::int32_t> lengths, bool small, bool last) {
        const auto fold = [&](std::vector<std::int32_t>& values, int most) {
          if (small)
            for (std::int32_t& x : values) x = (x % most + most) % most;
        };
        fold(indptr, static_cast<int>(indices.size()) + 2);
        fold(indices, 5);
        fold(lengths, 10);
        if (indptr.empty()) indptr = {0};
        if (lengths.empty()) lengths = {3};
        const CacheRows rows = Table{indptr, indices, last ? std::vector<std::int32_t>() : lengths,
                                     last ? lengths : std::vector<std::int32_t>()}
                                   .Rows();
        for (const RowSpan& span : rows.spans) {
          RC_ASSERT(span.page >= 0 && span.page < 4 && span.begin >= 0 && span.end <= 4);
        }
        RC_ASSERT(rows.problems.empty() == (rows.problem_count == 0));
      }));
}

}  // namespace
}  // namespace kvilt::cli
