// Part (c): continuations of one prefix that share its pages.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "cli/demo/call.h"
#include "cli/demo/paged_caches.h"
#include "cli/demo/parts.h"
#include "cli/kv_global.h"
#include "src/core/check.h"

namespace kvilt::cli::demo {
namespace {

constexpr std::int64_t kPageSize = 16;
constexpr std::int64_t kForks = 6;
constexpr std::int64_t kNewTokens = 28;  // Of each: the rest of a half page, one page, a part.
constexpr std::int64_t kShownPages = 3;  // Of the full shared ones.

// A pool with one NVFP4 cache.
struct Nvfp4Store {
  PagePool pool;
  PagedCache cache;
};

Result<Nvfp4Store> MakeStore(const Capture& capture, std::int64_t pages) {
  CacheShape shape;
  shape.pages = pages;
  shape.page_size = kPageSize;
  shape.kv_heads = capture.kv_heads();
  shape.head_dim_k = shape.head_dim_v = capture.head_dim();
  shape.k_dtype = shape.v_dtype = DType::kNVFP4;
  shape.k_global = GlobalFor(shape.k_dtype, LargestMagnitude(capture.k()));
  shape.v_global = GlobalFor(shape.v_dtype, LargestMagnitude(capture.v()));
  Result<PagedCache> cache = PagedCache::Create(shape);
  if (!cache.ok()) return cache.status();
  Result<PagePool> pool = PagePool::Create(pages, kPageSize);
  if (!pool.ok()) return pool.status();
  return Nvfp4Store{std::move(pool).value(), std::move(cache).value()};
}

// Appends rows [begin, begin + count) of the capture to each sequence, one after another: sequence
// i gets the i-th run. Returns how many pages had to be copied first.
Result<std::int64_t> Append(const Device& device, Nvfp4Store& store, const Capture& capture,
                            std::span<const SequenceId> sequences, std::int64_t begin,
                            std::int64_t count) {
  const std::vector<std::int64_t> tokens(sequences.size(), count);
  std::vector<PageCopy> copies;
  KVILT_RETURN_IF_ERROR(store.pool.Append(sequences, tokens, &copies));
  const Result<PagePool::Table> table = store.pool.MakeTable(sequences);
  if (!table.ok()) return table.status();
  const Segment segment = store.cache.View(*table);
  KVILT_RETURN_IF_ERROR(CopyPages(device, segment, copies));
  std::vector<std::int64_t> indptr;
  for (std::size_t i = 0; i <= sequences.size(); ++i) {
    indptr.push_back(static_cast<std::int64_t>(i) * count);
  }
  AppendRequest append;
  append.k = Tokens(capture.k(), begin, indptr.back());
  append.v = Tokens(capture.v(), begin, indptr.back());
  append.cache = segment;
  append.token_indptr = std::span<const std::int64_t>(indptr);
  KVILT_RETURN_IF_ERROR(AppendKv(device, append));
  return static_cast<std::int64_t>(copies.size());
}

// One query row of the capture for each sequence, over that sequence.
Result<std::vector<float>> Decode(const Device& device, const Nvfp4Store& store,
                                  const Capture& capture, std::span<const SequenceId> sequences) {
  const Result<PagePool::Table> table = store.pool.MakeTable(sequences);
  if (!table.ok()) return table.status();
  std::vector<std::int64_t> indptr(sequences.size() + 1);
  std::iota(indptr.begin(), indptr.end(), 0);
  AttentionRequest request = capture.query.request;
  request.q = Tokens(request.q, 0, static_cast<std::int64_t>(sequences.size()));
  request.q_indptr = std::span<const std::int64_t>(indptr);
  request.q_positions = {};
  request.segments = {store.cache.View(*table)};
  const Result<Call> call = Call::Make(device, request);
  if (!call.ok()) return call.status();
  KVILT_RETURN_IF_ERROR(call->Run());
  return call->out();
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::int64_t UsedPages(const PagePool& pool) { return pool.pages() - pool.free_pages(); }

// The sequences' pages from the last full shared ones on.
Result<std::vector<report::PageRow>> DrawPages(const PagePool& pool, SequenceId prefix,
                                               std::span<const SequenceId> forks) {
  const Result<std::vector<std::int32_t>> prefix_pages = pool.page_ids(prefix);
  if (!prefix_pages.ok()) return prefix_pages.status();
  const auto hidden =
      std::max<std::int64_t>(0, static_cast<std::int64_t>(prefix_pages->size()) - 1 - kShownPages);
  std::vector<SequenceId> all = {prefix};
  all.insert(all.end(), forks.begin(), forks.end());
  std::vector<report::PageRow> rows;
  for (std::size_t s = 0; s < all.size(); ++s) {
    const Result<std::vector<std::int32_t>> pages = pool.page_ids(all[s]);
    const Result<std::int64_t> length = pool.length(all[s]);
    if (!pages.ok() || !length.ok()) return pages.ok() ? length.status() : pages.status();
    report::PageRow row{s == 0 ? "prefix" : fmt::format("fork {}", s), hidden, {}};
    for (auto i = static_cast<std::size_t>(hidden); i < pages->size(); ++i) {
      const std::int64_t page = (*pages)[i];
      const std::int64_t in_page = *length - static_cast<std::int64_t>(i) * kPageSize;
      const bool copied = s > 0 && i + 1 == prefix_pages->size() && page != (*prefix_pages)[i];
      const report::PageKind kind = pool.owners(page) > 1 ? report::PageKind::kShared
                                    : copied              ? report::PageKind::kCopied
                                                          : report::PageKind::kOwn;
      row.cells.push_back(
          {page, kind, std::min(1.0, static_cast<double>(in_page) / double{kPageSize})});
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

// The same sequences without sharing, each from scratch.
Result<std::vector<float>> DecodeUnshared(const Device& device, const Capture& capture,
                                          std::int64_t prefix_tokens, std::int64_t* pages_used) {
  const std::int64_t pages_each = (prefix_tokens + kNewTokens + kPageSize - 1) / kPageSize;
  Result<Nvfp4Store> store = MakeStore(capture, pages_each * kForks);
  if (!store.ok()) return store.status();
  std::vector<SequenceId> sequences;
  for (std::int64_t i = 0; i < kForks; ++i) {
    const Result<SequenceId> sequence = store->pool.Create();
    if (!sequence.ok()) return sequence.status();
    sequences.push_back(*sequence);
    const SequenceId* last = &sequences.back();
    Result<std::int64_t> copies = Append(device, *store, capture, {last, 1}, 0, prefix_tokens);
    if (!copies.ok()) return copies.status();
    copies = Append(device, *store, capture, {last, 1}, i * kNewTokens, kNewTokens);
    if (!copies.ok()) return copies.status();
  }
  *pages_used = UsedPages(store->pool);
  return Decode(device, *store, capture, sequences);
}

}  // namespace

Result<ForkResult> RunFork(const Device& device, const Capture& capture) {
  ForkResult result;
  result.page_size = kPageSize;
  result.prefix_tokens = capture.tokens() / kPageSize * kPageSize - kPageSize / 2;
  result.continuations = kForks;
  result.new_tokens = kNewTokens;
  if (result.prefix_tokens < kPageSize || capture.tokens() < kForks * kNewTokens ||
      capture.queries() < kForks) {
    return Status::Invalid("capture", "too short for the fork; expected at least 168 tokens");
  }
  Result<Nvfp4Store> store = MakeStore(
      capture, result.prefix_tokens / kPageSize + 1 + kForks * (2 + kNewTokens / kPageSize));
  if (!store.ok()) return store.status();
  const Result<SequenceId> created = store->pool.Create();
  if (!created.ok()) return created.status();
  const SequenceId prefix = *created;
  const Result<std::int64_t> filled =
      Append(device, *store, capture, {&prefix, 1}, 0, result.prefix_tokens);
  if (!filled.ok()) return filled.status();
  const Result<std::vector<float>> before = Decode(device, *store, capture, {&prefix, 1});
  if (!before.ok()) return before.status();

  std::vector<SequenceId> forks;
  for (std::int64_t i = 0; i < kForks; ++i) {
    const Result<SequenceId> fork = store->pool.Fork(prefix);
    if (!fork.ok()) return fork.status();
    forks.push_back(*fork);
  }
  const Result<std::int64_t> copied = Append(device, *store, capture, forks, 0, kNewTokens);
  if (!copied.ok()) return copied.status();
  result.pages_copied = *copied;
  result.pages_used = UsedPages(store->pool);

  const Result<std::vector<float>> after = Decode(device, *store, capture, {&prefix, 1});
  if (!after.ok()) return after.status();
  result.prefix_unchanged = SameBits(*before, *after);
  const Result<std::vector<float>> shared = Decode(device, *store, capture, forks);
  if (!shared.ok()) return shared.status();
  std::int64_t unshared_pages = 0;
  const Result<std::vector<float>> unshared =
      DecodeUnshared(device, capture, result.prefix_tokens, &unshared_pages);
  if (!unshared.ok()) return unshared.status();
  result.forks_match = SameBits(*shared, *unshared);
  result.pages_unshared = unshared_pages + result.prefix_tokens / kPageSize + 1;
  result.bytes_per_page =
      (store->cache.data_bytes_per_token() + store->cache.scale_bytes_per_token()) *
      static_cast<double>(kPageSize);
  Result<std::vector<report::PageRow>> rows = DrawPages(store->pool, prefix, forks);
  if (!rows.ok()) return rows.status();
  result.rows = std::move(rows).value();
  return result;
}

}  // namespace kvilt::cli::demo
