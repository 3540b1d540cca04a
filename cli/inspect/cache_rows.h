// Which rows of a cache its page table or indptr addresses, for any table, broken ones included.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvilt/kv_cache.h"

namespace kvilt::cli {

// Tokens [begin, end) of one page. A ragged cache is one page.
struct RowSpan {
  std::int64_t page = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  friend bool operator==(const RowSpan&, const RowSpan&) = default;
};

struct CacheRows {
  std::vector<RowSpan> spans;         // Each addressed row once, by page.
  std::vector<std::int64_t> lengths;  // Tokens of each table row; what could be read of them.
  std::int64_t tokens = 0;            // Sum of the lengths.
  std::int64_t pages = 0;
  std::int64_t page_size = 0;
  std::int64_t pages_used = 0;
  std::int64_t pages_shared = 0;      // Pages that more than one place of the table names.
  std::vector<std::string> problems;  // At most kMaxTableProblems, each with its position.
  std::int64_t problem_count = 0;
};

inline constexpr std::int64_t kMaxTableProblems = 20;

// Never reads an index outside its array nor returns a row outside the cache.
// REQUIRES: a segment that LoadCacheFile accepts.
CacheRows RowsOf(const Segment& segment);

}  // namespace kvilt::cli
