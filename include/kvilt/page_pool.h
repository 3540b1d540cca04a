// PagePool: which pages belong to which sequence. Bookkeeping in host memory; the caches
// themselves are the caller's tensors, shared by all layers that use the same page ids.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvilt/attention.h"
#include "kvilt/device.h"
#include "kvilt/kv_cache.h"
#include "kvilt/status.h"

namespace kvilt {

using SequenceId = std::int64_t;

// A copy that the caller must perform before writing: the first `rows` tokens of page `from`, data
// and scales, to page `to`, in every cache that uses the pool.
struct PageCopy {
  std::int64_t from = 0;
  std::int64_t to = 0;
  std::int64_t rows = 0;
  friend bool operator==(const PageCopy&, const PageCopy&) = default;
};

// Not thread-safe. Every call either succeeds or returns a Status and changes nothing.
// Memory grows with the pages and sequences in use, not with the size of the pool.
class PagePool {
 public:
  // Errors: pages outside [0, 2^31 - 1], page_size < 1, pages * page_size overflows 64 bits.
  static Result<PagePool> Create(std::int64_t pages, std::int64_t page_size);

  // A new empty sequence. Ids are not reused while 2^31 others are made, so the id of a freed
  // sequence is refused. Errors: kResourceExhausted (host memory, 2^31 live sequences).
  Result<SequenceId> Create();
  // A new sequence that shares all pages of `parent`, the partial last one too. Nothing is copied.
  Result<SequenceId> Fork(SequenceId parent);
  // Room for tokens[i] >= 0 more at the end of sequences[i]; none is listed twice. A partial last
  // page with more than one owner is replaced by a fresh one, and what must be copied before the
  // new tokens are written is added to the end of `copies` (CopyPages does it).
  // Errors: kResourceExhausted (not enough free pages; the message says how many are needed),
  // kInvalidArgument.
  Status Append(std::span<const SequenceId> sequences, std::span<const std::int64_t> tokens,
                std::vector<PageCopy>* copies);
  // Drops the last `tokens` tokens (rejected drafts); pages left empty are released.
  Status Truncate(SequenceId sequence, std::int64_t tokens);
  // Forgets the sequence; pages whose owner count reaches zero become free.
  Status Free(SequenceId sequence);

  std::int64_t page_size() const { return page_size_; }
  std::int64_t pages() const { return pages_; }
  std::int64_t free_pages() const {
    return pages_ - static_cast<std::int64_t>(owners_.size() - released_.size());
  }
  std::int64_t owners(std::int64_t page) const;            // 0 for a page out of range.
  Result<std::int64_t> length(SequenceId sequence) const;  // Tokens.
  Result<std::vector<std::int32_t>> page_ids(SequenceId sequence) const;

  // The CSR page table of a batch of sequences, in owned arrays; `view()` borrows them.
  struct Table {
    std::vector<std::int64_t> indptr;
    std::vector<std::int32_t> indices;
    std::vector<std::int64_t> kv_len;
    PageTable view() const;
  };
  Result<Table> MakeTable(std::span<const SequenceId> sequences) const;

 private:
  struct Sequence {
    std::int64_t tokens = 0;
    std::vector<std::int32_t> pages;
    std::int32_t generation = 0;  // The high half of the id.
    bool live = false;
  };
  PagePool() = default;

  Result<std::int64_t> Find(SequenceId id, const char* field, std::int64_t position) const;
  Result<std::int64_t> PagesNeeded(std::span<const std::int64_t> slots,
                                   std::span<const std::int64_t> tokens);
  bool WritesSharedPage(const Sequence& sequence, std::int64_t tokens) const;
  std::int32_t TakePage();
  void ReleasePage(std::int32_t page);

  std::int64_t page_size_ = 1;
  std::int64_t pages_ = 0;
  std::vector<std::int32_t> owners_;    // Of each page that was ever used; others are free.
  std::vector<std::int32_t> released_;  // Free again; the next page is its back.
  std::vector<Sequence> sequences_;     // By slot, the low half of the id.
  std::vector<std::int32_t> free_slots_;
};

// Performs the copies in one paged cache: data and scales of the first `rows` tokens of each page,
// for all KV heads of both sides. Errors: page ids or rows out of range, a ragged segment, tensors
// that overlap themselves or each other.
Status CopyPages(const Device& device, const Segment& cache, std::span<const PageCopy> copies,
                 Stream stream = {});

}  // namespace kvilt
