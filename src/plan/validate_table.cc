#include "src/plan/validate_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/core/check.h"
#include "src/plan/tensor_check.h"

namespace kvilt::plan {
namespace {

// Where the page ids of row r begin, and how many the table offers it.
struct PageRun {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

template <class Visit>
bool WithEntries(const IndexArray& array, Visit&& visit) {
  return array.dtype == DType::kI32 ? visit(static_cast<const std::int32_t*>(array.data))
                                    : visit(static_cast<const std::int64_t*>(array.data));
}

// The lengths of all rows of a table whose arrays were checked; false where a row is, or may be,
// wrong.
bool PlainCsr(const IndexArray& indptr, const IndexArray& tokens, std::int64_t ids,
              std::int64_t page_size, bool last_page, std::vector<std::int64_t>& lengths) {
  return WithEntries(indptr, [&](const auto* begins) {
    return WithEntries(tokens, [&](const auto* counts) {
      bool fine = begins[0] >= 0;
      for (std::size_t row = 0; row < lengths.size(); ++row) {
        const std::int64_t pages = std::int64_t{begins[row + 1]} - begins[row];
        const std::int64_t count = counts[row];
        std::int64_t room = 0;
        fine = fine && pages >= 0 && begins[row + 1] <= ids && Multiply(pages, page_size, room);
        if (last_page) {
          fine = fine && count >= (pages > 0) && count <= page_size;
          lengths[row] = pages > 0 ? room - page_size + count : 0;
        } else {
          fine = fine && count >= 0 && count <= room;
          lengths[row] = count;
        }
        if (!fine) return false;
      }
      return true;
    });
  });
}

bool PlainPadded(const IndexArray& tokens, std::int64_t ids, std::int64_t row_stride,
                 std::int64_t page_size, std::vector<std::int64_t>& lengths) {
  std::int64_t room = 0;
  std::int64_t end = 0;  // Of the last row, if it has all its pages.
  if (!Multiply(row_stride, page_size, room) ||
      !Multiply(row_stride, static_cast<std::int64_t>(lengths.size()), end) || end > ids) {
    return false;
  }
  return WithEntries(tokens, [&](const auto* counts) {
    for (std::size_t row = 0; row < lengths.size(); ++row) {
      lengths[row] = counts[row];
      if (counts[row] < 0 || counts[row] > room) return false;
    }
    return true;
  });
}

bool PlainLengths(const PageTable& table, std::int64_t page_size,
                  std::vector<std::int64_t>& lengths) {
  if (lengths.empty()) return false;
  if (!table.indptr.defined()) {
    return PlainPadded(table.kv_len, table.indices.size, table.row_stride, page_size, lengths);
  }
  const bool last_page = table.last_page_len.defined();
  return PlainCsr(table.indptr, last_page ? table.last_page_len : table.kv_len, table.indices.size,
                  page_size, last_page, lengths);
}

class PageTableWalk {
 public:
  PageTableWalk(const PageTable& table, std::int64_t pages, std::int64_t page_size,
                DeviceKind device, std::string_view field)
      : table_(table), pages_(pages), page_size_(page_size), device_(device), field_(field) {}

  Status Walk(std::int64_t rows, bool check_pages, const LengthVisitor& visit) {
    KVILT_RETURN_IF_ERROR(CheckForm());
    if (rows == kAnyExtent) rows = RowsOfTable();
    KVILT_RETURN_IF_ERROR(CheckArrays(rows));
    return WalkRows(rows, check_pages, visit);
  }

  // Rows are read in one plain loop where ids need no look; where that loop meets anything odd, the
  // walk says what it is.
  Status Lengths(std::int64_t rows, bool check_pages, std::vector<std::int64_t>& lengths) {
    KVILT_RETURN_IF_ERROR(CheckForm());
    if (rows == kAnyExtent) rows = RowsOfTable();
    KVILT_RETURN_IF_ERROR(CheckArrays(rows));
    lengths.resize(static_cast<std::size_t>(rows));
    if (!(check_pages && table_.indices.on_host()) && PlainLengths(table_, page_size_, lengths)) {
      return {};
    }
    const auto keep = [&lengths](std::int64_t row, std::int64_t tokens) {
      lengths[static_cast<std::size_t>(row)] = tokens;
      return Status();
    };
    return WalkRows(rows, check_pages, std::cref(keep));
  }

 private:
  bool csr() const { return table_.indptr.defined(); }
  std::int64_t RowsOfTable() const {
    return std::max<std::int64_t>(0, csr() ? table_.indptr.size - 1 : table_.kv_len.size);
  }

  Status WalkRows(std::int64_t rows, bool check_pages, const LengthVisitor& visit) const {
    for (std::int64_t row = 0; row < rows; ++row) {
      std::int64_t length = 0;
      KVILT_RETURN_IF_ERROR(CheckRow(row, length));
      if (check_pages && table_.indices.on_host()) KVILT_RETURN_IF_ERROR(CheckIds(row, length));
      KVILT_RETURN_IF_ERROR(visit(row, length));
    }
    return {};
  }

  FieldPath At(std::string_view name) const { return {field_, name}; }
  std::string Entry(std::string_view name, std::int64_t i) const {
    return At(name).str(fmt::format("[{}]", i));
  }

  Status CheckForm() const {
    if (csr() && table_.row_stride != 0) {
      return Status::Invalid(
          At("table.row_stride").str(),
          fmt::format("{}, expected 0: the table has an indptr (CSR)", table_.row_stride));
    }
    if (!csr() && table_.row_stride < 0) {
      return Status::Invalid(At("table.row_stride").str(),
                             fmt::format("{}, expected >= 0", table_.row_stride));
    }
    if (table_.kv_len.defined() && table_.last_page_len.defined()) {
      return Status::Invalid(At("table.last_page_len").str(),
                             "given beside kv_len, expected exactly one of the two");
    }
    if (!csr() && table_.last_page_len.defined()) {
      return Status::Invalid(At("table.last_page_len").str(),
                             "given for a padded table, expected kv_len (last_page_len needs an "
                             "indptr)");
    }
    return {};
  }

  Status CheckArrays(std::int64_t rows) const {
    std::int64_t bounds = 0;
    if (!Add(rows, 1, bounds)) {
      return Status::Invalid(At("table.indptr.size").str(),
                             fmt::format("{} rows, expected fewer than 2^63 - 1", rows));
    }
    if (csr()) {
      KVILT_RETURN_IF_ERROR(
          CheckIndexArray(table_.indptr, bounds, true, device_, At("table.indptr")));
    }
    if (table_.last_page_len.defined()) {
      KVILT_RETURN_IF_ERROR(
          CheckIndexArray(table_.last_page_len, rows, true, device_, At("table.last_page_len")));
    } else if (rows > 0 && !table_.kv_len.defined()) {
      return Status::Invalid(At("table.kv_len").str(),
                             csr() ? "not given, expected kv_len or last_page_len"
                                   : "not given, expected the tokens of each row");
    } else if (table_.kv_len.defined()) {
      KVILT_RETURN_IF_ERROR(
          CheckIndexArray(table_.kv_len, rows, true, device_, At("table.kv_len")));
    }
    return CheckIndexArray(table_.indices, kAnyExtent, false, device_, At("table.indices"));
  }

  Status Overflow(std::int64_t row) const {
    return Status::Invalid(At("table.row_stride").str(),
                           fmt::format("{} overflows 64 bits at request {}, expected at most the "
                                       "size of indices, {}",
                                       table_.row_stride, row, table_.indices.size));
  }

  // The run of page ids of a row, checked to lie inside `indices`.
  Status RunOf(std::int64_t row, PageRun& run) const {
    if (!csr()) {
      if (row > 0 && !Multiply(row, table_.row_stride, run.begin)) {
        return Overflow(row);
      }
      run.count = table_.row_stride;
      return {};
    }
    run.begin = table_.indptr[row];
    const std::int64_t end = table_.indptr[row + 1];
    if (run.begin < 0) {
      return Status::Invalid(Entry("table.indptr", row),
                             fmt::format("{}, expected >= 0", run.begin));
    }
    if (end < run.begin) {
      return Status::Invalid(
          Entry("table.indptr", row + 1),
          fmt::format("{} after {}, expected not to decrease (request {})", end, run.begin, row));
    }
    if (end > table_.indices.size) {
      return Status::Invalid(Entry("table.indptr", row + 1),
                             fmt::format("{}, expected <= {}, the size of indices (request {})",
                                         end, table_.indices.size, row));
    }
    run.count = end - run.begin;
    return {};
  }

  Status CheckRow(std::int64_t row, std::int64_t& length) const {
    PageRun run;
    KVILT_RETURN_IF_ERROR(RunOf(row, run));
    if (table_.last_page_len.defined()) return LengthFromLastPage(row, run, length);

    length = table_.kv_len[row];
    if (length < 0) {
      return Status::Invalid(Entry("table.kv_len", row), fmt::format("{}, expected >= 0", length));
    }
    const std::int64_t needed = PagesOf(length);
    if (needed > run.count) {
      return Status::Invalid(
          Entry("table.kv_len", row),
          fmt::format("{} tokens need {} pages of {}, expected at most the {} that {} gives "
                      "request {}",
                      length, needed, page_size_, run.count, csr() ? "indptr" : "row_stride", row));
    }
    std::int64_t end = 0;
    if (csr() || needed == 0) return {};
    if (!Add(run.begin, needed, end)) return Overflow(row);
    if (end > table_.indices.size) {
      return Status::Invalid(At("table.indices.size").str(),
                             fmt::format("{}, expected >= {}: request {} reads {} page ids from {}",
                                         table_.indices.size, end, row, needed, run.begin));
    }
    return {};
  }

  Status LengthFromLastPage(std::int64_t row, const PageRun& run, std::int64_t& length) const {
    const std::int64_t last = table_.last_page_len[row];
    const std::int64_t least = run.count == 0 ? 0 : 1;
    if (last < least || last > page_size_) {
      return Status::Invalid(Entry("table.last_page_len", row),
                             fmt::format("{}, expected {}..{} (page_size; request {} has {} pages)",
                                         last, least, page_size_, row, run.count));
    }
    length = 0;
    if (run.count == 0) return {};
    if (!Multiply(run.count - 1, page_size_, length) || !Add(length, last, length)) {
      return Status::Invalid(
          Entry("table.last_page_len", row),
          fmt::format("{} pages of {} tokens overflow 64 bits (request {}), expected less",
                      run.count, page_size_, row));
    }
    return {};
  }

  Status CheckIds(std::int64_t row, std::int64_t length) const {
    const std::int64_t begin = csr() ? table_.indptr[row] : row * table_.row_stride;
    const std::int64_t end = begin + PagesOf(length);
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t id = table_.indices[i];
      if (id < 0 || id >= pages_) {
        return Status::Invalid(Entry("table.indices", i),
                               fmt::format("page {} (request {}, page {} of it), expected 0..{}",
                                           id, row, i - begin, pages_ - 1));
      }
    }
    return {};
  }

  std::int64_t PagesOf(std::int64_t tokens) const {
    return tokens == 0 ? 0 : (tokens - 1) / page_size_ + 1;
  }

  const PageTable& table_;
  const std::int64_t pages_;
  const std::int64_t page_size_;
  const DeviceKind device_;
  const std::string_view field_;
};

}  // namespace

Status WalkPageTable(const PageTable& table, std::int64_t rows, std::int64_t pages,
                     std::int64_t page_size, DeviceKind device, bool check_pages,
                     std::string_view field, const LengthVisitor& visit) {
  return PageTableWalk(table, pages, page_size, device, field).Walk(rows, check_pages, visit);
}

Status PageTableLengths(const PageTable& table, std::int64_t rows, std::int64_t pages,
                        std::int64_t page_size, DeviceKind device, bool check_pages,
                        std::string_view field, std::vector<std::int64_t>& lengths) {
  return PageTableWalk(table, pages, page_size, device, field).Lengths(rows, check_pages, lengths);
}

Status WalkRaggedIndptr(const IndexArray& indptr, std::int64_t rows, std::int64_t total,
                        DeviceKind device, std::string_view field, const LengthVisitor& visit) {
  const FieldPath path{field, "indptr"};
  if (rows == kAnyExtent) rows = indptr.size > 0 ? indptr.size - 1 : 0;
  KVILT_RETURN_IF_ERROR(CheckIndexArray(indptr, rows + 1, true, device, path));
  std::int64_t begin = indptr[0];
  if (begin < 0) {
    return Status::Invalid(path.str("[0]"), fmt::format("{}, expected >= 0", begin));
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t end = indptr[row + 1];
    if (end < begin) {
      return Status::Invalid(
          path.str(fmt::format("[{}]", row + 1)),
          fmt::format("{} after {}, expected not to decrease (request {})", end, begin, row));
    }
    if (end > total) {
      return Status::Invalid(
          path.str(fmt::format("[{}]", row + 1)),
          fmt::format("{}, expected <= {}, the rows of the cache (request {})", end, total, row));
    }
    KVILT_RETURN_IF_ERROR(visit(row, end - begin));
    begin = end;
  }
  return {};
}

}  // namespace kvilt::plan
