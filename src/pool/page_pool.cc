#include "kvilt/page_pool.h"

#include <algorithm>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>

#include "src/core/check.h"

namespace kvilt {
namespace {

constexpr std::int64_t kMaxPages = std::numeric_limits<std::int32_t>::max();  // Ids are int32.
constexpr std::int64_t kMaxSlots = std::numeric_limits<std::int32_t>::max();
constexpr int kSlotBits = 32;

std::int64_t CeilDiv(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0); }

std::string At(const char* field, std::int64_t position) {
  return position < 0 ? std::string(field) : field + ("[" + std::to_string(position) + "]");
}

Status NoHostMemory() { return Status::Exhausted("page_pool", "no host memory for its lists"); }

// Runs a step that only reserves memory or builds a value of its own.
template <class Step>
Status Reserve(Step&& step) {
  try {
    step();
  } catch (const std::bad_alloc&) {
    return NoHostMemory();
  } catch (const std::length_error&) {
    return NoHostMemory();
  }
  return Status::Ok();
}

// Room for `count` entries. At least doubles where it grows, as push_back would: an exact reserve
// on every call would copy the list each time.
template <class T>
void ReserveAtLeast(std::vector<T>& list, std::size_t count) {
  if (count > list.capacity()) list.reserve(std::max(count, 2 * list.capacity()));
}

// An array that counts as given even when it is empty.
template <class T>
IndexArray Defined(const std::vector<T>& values) {
  static constexpr T kNone = 0;
  if (values.empty()) return std::span<const T>(&kNone, 0);
  return std::span<const T>(values);
}

}  // namespace

Result<PagePool> PagePool::Create(std::int64_t pages, std::int64_t page_size) {
  if (pages < 0 || pages > kMaxPages) {
    return Status::Invalid("pages", std::to_string(pages) + "; accepted: 0 to 2^31 - 1");
  }
  if (page_size < 1) {
    return Status::Invalid("page_size", std::to_string(page_size) + "; accepted: at least 1");
  }
  std::int64_t tokens = 0;
  if (__builtin_mul_overflow(pages, page_size, &tokens)) {
    return Status::Invalid("page_size", std::to_string(page_size) + " tokens times " +
                                            std::to_string(pages) + " pages overflows 64 bits");
  }
  PagePool pool;
  pool.pages_ = pages;
  pool.page_size_ = page_size;
  return pool;
}

Result<std::int64_t> PagePool::Find(SequenceId id, const char* field, std::int64_t position) const {
  const std::int64_t slot = id & 0xFFFFFFFF;
  if (id >= 0 && slot < static_cast<std::int64_t>(sequences_.size())) {
    const Sequence& sequence = sequences_[static_cast<std::size_t>(slot)];
    if (sequence.live && sequence.generation == id >> kSlotBits) return slot;
  }
  return Status::Invalid(At(field, position),
                         std::to_string(id) + " is not a live sequence of this pool");
}

Result<SequenceId> PagePool::Create() {
  if (free_slots_.empty()) {
    if (static_cast<std::int64_t>(sequences_.size()) >= kMaxSlots) {
      return Status::Exhausted("page_pool", "2^31 - 1 sequences are live");
    }
    // Room for every slot to become free, so that Free never allocates.
    KVILT_RETURN_IF_ERROR(Reserve([this] {
      sequences_.emplace_back();
      try {
        free_slots_.reserve(sequences_.capacity());
      } catch (...) {
        sequences_.pop_back();
        throw;
      }
    }));
    free_slots_.push_back(static_cast<std::int32_t>(sequences_.size() - 1));
  }
  const std::int32_t slot = free_slots_.back();
  free_slots_.pop_back();
  Sequence& sequence = sequences_[static_cast<std::size_t>(slot)];
  sequence.live = true;
  return static_cast<std::int64_t>(sequence.generation) << kSlotBits | slot;
}

Result<SequenceId> PagePool::Fork(SequenceId parent) {
  const Result<std::int64_t> from = Find(parent, "parent", -1);
  if (!from.ok()) return from.status();
  std::vector<std::int32_t> shared;
  KVILT_RETURN_IF_ERROR(
      Reserve([&] { shared = sequences_[static_cast<std::size_t>(*from)].pages; }));
  Result<SequenceId> id = Create();
  if (!id.ok()) return id;
  for (const std::int32_t page : shared) ++owners_[static_cast<std::size_t>(page)];
  Sequence& child = sequences_[static_cast<std::size_t>(*id & 0xFFFFFFFF)];
  child.tokens = sequences_[static_cast<std::size_t>(*from)].tokens;
  child.pages = std::move(shared);
  return id;
}

bool PagePool::WritesSharedPage(const Sequence& sequence, std::int64_t tokens) const {
  return tokens > 0 && sequence.tokens % page_size_ != 0 &&
         owners_[static_cast<std::size_t>(sequence.pages.back())] > 1;
}

Result<std::int64_t> PagePool::PagesNeeded(std::span<const std::int64_t> slots,
                                           std::span<const std::int64_t> tokens) {
  std::int64_t needed = 0;
  Status status;
  // Sequences of one call may share a page: the last of its owners to write keeps it. So owner
  // counts are lowered here as the real pass will lower them, and put back below.
  std::size_t visited = 0;
  std::vector<std::int32_t> lowered;
  KVILT_RETURN_IF_ERROR(Reserve([&] { lowered.reserve(slots.size()); }));
  for (; visited < slots.size() && status.ok(); ++visited) {
    const Sequence& sequence = sequences_[static_cast<std::size_t>(slots[visited])];
    const std::int64_t more = tokens[visited];
    // Create made sure that this product fits.
    if (more > pages_ * page_size_ - sequence.tokens) {
      status = Status::Exhausted(At("tokens", static_cast<std::int64_t>(visited)),
                                 std::to_string(more) + " more tokens after " +
                                     std::to_string(sequence.tokens) + "; the whole pool holds " +
                                     std::to_string(pages_ * page_size_));
      break;
    }
    const std::int64_t total = sequence.tokens + more;
    needed += CeilDiv(total, page_size_) - static_cast<std::int64_t>(sequence.pages.size());
    if (WritesSharedPage(sequence, more)) {
      ++needed;
      lowered.push_back(sequence.pages.back());
      --owners_[static_cast<std::size_t>(lowered.back())];
    }
    if (needed > free_pages()) {
      status = Status::Exhausted("page_pool", "tokens up to sequences[" + std::to_string(visited) +
                                                  "] need " + std::to_string(needed) +
                                                  " more pages, " + std::to_string(free_pages()) +
                                                  " of " + std::to_string(pages_) + " are free");
    }
  }
  for (const std::int32_t page : lowered) ++owners_[static_cast<std::size_t>(page)];
  if (!status.ok()) return status;
  return needed;
}

Status PagePool::Append(std::span<const SequenceId> sequences, std::span<const std::int64_t> tokens,
                        std::vector<PageCopy>* copies) {
  if (copies == nullptr) return Status::Invalid("copies", "null; the copies are not optional");
  if (sequences.size() != tokens.size()) {
    return Status::Invalid("tokens", std::to_string(tokens.size()) + " values for " +
                                         std::to_string(sequences.size()) + " sequences");
  }
  std::vector<std::int64_t> slots;
  KVILT_RETURN_IF_ERROR(Reserve([&] { slots.reserve(2 * sequences.size()); }));
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const std::int64_t position = static_cast<std::int64_t>(i);
    const Result<std::int64_t> slot = Find(sequences[i], "sequences", position);
    if (!slot.ok()) return slot.status();
    if (tokens[i] < 0) {
      return Status::Invalid(At("tokens", position),
                             std::to_string(tokens[i]) + "; accepted: at least 0");
    }
    slots.push_back(*slot);
  }
  std::vector<std::int64_t> sorted;
  KVILT_RETURN_IF_ERROR(Reserve([&] { sorted = slots; }));
  std::sort(sorted.begin(), sorted.end());
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end()) {
    const auto second = std::find(slots.rbegin(), slots.rend(), *twice);
    return Status::Invalid(At("sequences", slots.rend() - second - 1), "listed twice");
  }
  const Result<std::int64_t> needed = PagesNeeded(slots, tokens);
  if (!needed.ok()) return needed.status();

  KVILT_RETURN_IF_ERROR(Reserve([&] {
    ReserveAtLeast(*copies, copies->size() + slots.size());
    ReserveAtLeast(owners_, owners_.size() + static_cast<std::size_t>(*needed));
    released_.reserve(owners_.capacity());  // So that releasing never allocates.
    for (std::size_t i = 0; i < slots.size(); ++i) {
      Sequence& sequence = sequences_[static_cast<std::size_t>(slots[i])];
      ReserveAtLeast(sequence.pages,
                     static_cast<std::size_t>(CeilDiv(sequence.tokens + tokens[i], page_size_)));
    }
  }));
  for (std::size_t i = 0; i < slots.size(); ++i) {
    Sequence& sequence = sequences_[static_cast<std::size_t>(slots[i])];
    if (WritesSharedPage(sequence, tokens[i])) {
      const std::int32_t fresh = TakePage();
      copies->push_back({sequence.pages.back(), fresh, sequence.tokens % page_size_});
      ReleasePage(sequence.pages.back());
      sequence.pages.back() = fresh;
    }
    sequence.tokens += tokens[i];
    const auto total = static_cast<std::size_t>(CeilDiv(sequence.tokens, page_size_));
    while (sequence.pages.size() < total) sequence.pages.push_back(TakePage());
  }
  return Status::Ok();
}

std::int32_t PagePool::TakePage() {
  std::int32_t page = static_cast<std::int32_t>(owners_.size());
  if (released_.empty()) {
    KVILT_CHECK(page < pages_);
    owners_.push_back(1);
  } else {
    page = released_.back();
    released_.pop_back();
    owners_[static_cast<std::size_t>(page)] = 1;
  }
  return page;
}

void PagePool::ReleasePage(std::int32_t page) {
  std::int32_t& owners = owners_[static_cast<std::size_t>(page)];
  KVILT_CHECK(owners > 0);
  if (--owners == 0) released_.push_back(page);
}

Status PagePool::Truncate(SequenceId id, std::int64_t tokens) {
  const Result<std::int64_t> slot = Find(id, "sequence", -1);
  if (!slot.ok()) return slot.status();
  Sequence& sequence = sequences_[static_cast<std::size_t>(*slot)];
  if (tokens < 0 || tokens > sequence.tokens) {
    return Status::Invalid("tokens", std::to_string(tokens) + "; accepted: 0 to the length, " +
                                         std::to_string(sequence.tokens));
  }
  sequence.tokens -= tokens;
  const auto kept = static_cast<std::size_t>(CeilDiv(sequence.tokens, page_size_));
  while (sequence.pages.size() > kept) {
    ReleasePage(sequence.pages.back());
    sequence.pages.pop_back();
  }
  return Status::Ok();
}

Status PagePool::Free(SequenceId id) {
  const Result<std::int64_t> slot = Find(id, "sequence", -1);
  if (!slot.ok()) return slot.status();
  Sequence& sequence = sequences_[static_cast<std::size_t>(*slot)];
  for (const std::int32_t page : sequence.pages) ReleasePage(page);
  sequence.pages = {};
  sequence.tokens = 0;
  sequence.live = false;
  sequence.generation = (sequence.generation + 1) & 0x7FFFFFFF;
  free_slots_.push_back(static_cast<std::int32_t>(*slot));
  return Status::Ok();
}

std::int64_t PagePool::owners(std::int64_t page) const {
  if (page < 0 || page >= static_cast<std::int64_t>(owners_.size())) return 0;
  return owners_[static_cast<std::size_t>(page)];
}

Result<std::int64_t> PagePool::length(SequenceId id) const {
  const Result<std::int64_t> slot = Find(id, "sequence", -1);
  if (!slot.ok()) return slot.status();
  return sequences_[static_cast<std::size_t>(*slot)].tokens;
}

Result<std::vector<std::int32_t>> PagePool::page_ids(SequenceId id) const {
  const Result<std::int64_t> slot = Find(id, "sequence", -1);
  if (!slot.ok()) return slot.status();
  std::vector<std::int32_t> pages;
  KVILT_RETURN_IF_ERROR(
      Reserve([&] { pages = sequences_[static_cast<std::size_t>(*slot)].pages; }));
  return pages;
}

Result<PagePool::Table> PagePool::MakeTable(std::span<const SequenceId> sequences) const {
  Table table;
  Status status;
  KVILT_RETURN_IF_ERROR(Reserve([&] {
    table.indptr.push_back(0);
    for (std::size_t i = 0; i < sequences.size() && status.ok(); ++i) {
      const auto slot = Find(sequences[i], "sequences", static_cast<std::int64_t>(i));
      status = slot.status();
      if (!slot.ok()) return;
      const Sequence& sequence = sequences_[static_cast<std::size_t>(*slot)];
      table.indices.insert(table.indices.end(), sequence.pages.begin(), sequence.pages.end());
      table.indptr.push_back(static_cast<std::int64_t>(table.indices.size()));
      table.kv_len.push_back(sequence.tokens);
    }
  }));
  if (!status.ok()) return status;
  return table;
}

PageTable PagePool::Table::view() const {
  PageTable view;
  view.indptr = Defined(indptr);
  view.indices = Defined(indices);
  view.kv_len = Defined(kv_len);
  return view;
}

}  // namespace kvilt
