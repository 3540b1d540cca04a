#include "cli/run/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "cli/inspect/cache_rows.h"
#include "cli/inspect/side_stats.h"
#include "cli/inspect/side_view.h"
#include "cli/kv_global.h"
#include "src/core/check.h"
#include "src/core/host.h"

namespace kvilt::cli::run {
namespace {

// One multiplier, or one per head, as --global says.
Result<std::vector<float>> Globals(const StoreArgs& args, DType dtype, const TensorView& rows) {
  if (!IsQuantized(dtype)) return std::vector<float>{1.0f};
  if (args.global != "auto" && args.global != "heads") {
    float value = 0;
    const char* end = args.global.data() + args.global.size();
    const auto [stop, error] = std::from_chars(args.global.data(), end, value);
    if (error != std::errc() || stop != end) {
      return Status::Invalid("--global",
                             fmt::format("'{}', accepted: auto, heads, or a number", args.global));
    }
    return std::vector<float>{value};
  }
  CacheSide source;
  source.data = rows;
  const RowSpan all = {0, 0, rows.shape[0]};
  std::vector<float> globals;
  double amax = 0;
  for (const HeadMagnitude& head : MeasureSide(source, {&all, 1}).heads) {
    globals.push_back(GlobalFor(dtype, head.max_abs));
    amax = std::max(amax, head.max_abs);
  }
  if (args.global == "auto") globals = {GlobalFor(dtype, amax)};
  return globals;
}

Result<DType> WantedDType(const std::string& option, const std::string& own,
                          const std::string& both, DType source) {
  const std::string& text = own.empty() ? both : own;
  if (text.empty()) return source;
  const std::optional<DType> dtype = ParseDType(text);
  if (dtype && IsCacheDType(*dtype)) return *dtype;
  return Status::Invalid(own.empty() ? "--kv-dtype" : option,
                         fmt::format("'{}', accepted: f32, bf16, f16, e4m3, e5m2, nvfp4", text));
}

Result<core::AlignedMemory> Allocate(std::initializer_list<std::int64_t> shape, DType dtype) {
  std::int64_t bytes = StorageBytes(dtype);
  for (const std::int64_t extent : shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) {
      return Status::Exhausted("--page-size", "the cache would need more than 2^63 bytes");
    }
  }
  // The system may promise memory that it does not have, and end the process that uses it.
  const std::int64_t available = core::AvailableMemoryBytes();
  if (available > 0 && bytes > available) {
    return Status::Exhausted(
        "cache", fmt::format("{} bytes of memory, this machine has {} to spare", bytes, available));
  }
  core::AlignedMemory memory(static_cast<std::size_t>(bytes));
  if (memory.data() == nullptr)
    return Status::Exhausted("cache", fmt::format("no memory for {} bytes", bytes));
  memory.Fill(0);  // Page tails are part of a saved cache: the same input gives the same file.
  return memory;
}

class Builder {
 public:
  Builder(const StoreArgs& args, StoredCache& cache) : args_(args), cache_(cache) {}

  // Pages one after another in the order of the requests; or the ragged rows.
  Status BuildTable(std::span<const std::int64_t> indptr) {
    page_size_ = args_.page_size;
    cache_.indptr.assign(indptr.begin(), indptr.end());
    pages_ = 1;
    if (page_size_ == 0) {
      page_size_ = indptr.back();
      return Status::Ok();
    }
    pages_ = 0;
    for (std::size_t r = 0; r + 1 < indptr.size(); ++r) {
      const std::int64_t length = indptr[r + 1] - indptr[r];
      cache_.kv_len.push_back(length);
      pages_ += length / page_size_ + (length % page_size_ != 0);
      cache_.indptr[r + 1] = pages_;
    }
    for (std::int64_t page = 0; page < pages_; ++page) cache_.indices.push_back(page);
    return Status::Ok();
  }

  Status BuildSide(DType dtype, const TensorView& rows, core::AlignedMemory* memory,
                   std::vector<float>& globals, CacheSide& side) {
    Result<std::vector<float>> wanted = Globals(args_, dtype, rows);
    if (!wanted.ok()) return wanted.status();
    globals = std::move(wanted).value();
    if (globals.size() == 1) {
      side.global.value = globals[0];
    } else {
      side.global.array = globals.data();
      side.global.array_size = static_cast<std::int64_t>(globals.size());
    }
    side.layout = args_.layout == "NHD" ? KvLayout::kNHD : KvLayout::kHND;
    const std::int64_t heads = rows.shape[1];
    const std::int64_t head_dim = rows.shape[2];
    const bool nvfp4 = dtype == DType::kNVFP4;
    if (nvfp4 && head_dim % kBlockElements != 0) {
      return Status::Invalid(
          "--kv-dtype", fmt::format("nvfp4 needs a head dim in multiples of 16, not {}", head_dim));
    }
    KVILT_RETURN_IF_ERROR(Place(dtype, heads, RowElements(dtype, head_dim), memory[0], side.data));
    if (nvfp4) {
      KVILT_RETURN_IF_ERROR(
          Place(DType::kE4M3, heads, head_dim / kBlockElements, memory[1], side.scales));
    }
    return Status::Ok();
  }

  Segment Finish(const CacheSide& k, const CacheSide& v) const {
    const auto borrow = [](const std::vector<std::int64_t>& values) {
      return std::span<const std::int64_t>(values);
    };
    Segment segment;
    if (args_.page_size == 0) {
      segment.kv = RaggedKv{k, v, borrow(cache_.indptr)};
      return segment;
    }
    PagedKv paged{k, v, {}};
    paged.table.indptr = borrow(cache_.indptr);
    paged.table.indices = borrow(cache_.indices);
    paged.table.kv_len = borrow(cache_.kv_len);
    segment.kv = paged;
    return segment;
  }

 private:
  Status Place(DType dtype, std::int64_t heads, std::int64_t row, core::AlignedMemory& memory,
               TensorView& view) {
    Result<core::AlignedMemory> allocated = Allocate({pages_, page_size_, heads, row}, dtype);
    if (!allocated.ok()) return allocated.status();
    memory = std::move(allocated).value();
    const bool nhd = args_.layout == "NHD";
    const std::int64_t outer = nhd ? page_size_ : heads;
    const std::int64_t inner = nhd ? heads : page_size_;
    view = args_.page_size == 0
               ? TensorView::Dense(memory.data(), dtype, {outer, inner, row})
               : TensorView::Dense(memory.data(), dtype, {pages_, outer, inner, row});
    return Status::Ok();
  }

  const StoreArgs& args_;
  StoredCache& cache_;
  std::int64_t pages_ = 0;
  std::int64_t page_size_ = 0;
};

Status CheckRows(const char* name, const TensorView& rows, std::span<const std::int64_t> indptr) {
  const bool dtype =
      rows.dtype == DType::kF32 || rows.dtype == DType::kBF16 || rows.dtype == DType::kF16;
  if (rows.rank != 3 || !dtype) {
    return Status::Invalid(
        name, fmt::format("{} of rank {}, expected f32, bf16 or f16 [tokens, kv_heads, head_dim]",
                          Name(rows.dtype), rows.rank));
  }
  if (rows.shape[0] != indptr.back()) {
    return Status::Invalid(name, fmt::format("{} tokens, expected {}, where indptr ends",
                                             rows.shape[0], indptr.back()));
  }
  return Status::Ok();
}

}  // namespace

Result<StoredCache> Store(const Device& device, const StoreArgs& args, const TensorView& k,
                          const TensorView& v, std::span<const std::int64_t> indptr) {
  KVILT_RETURN_IF_ERROR(CheckRows("--k", k, indptr));
  KVILT_RETURN_IF_ERROR(CheckRows("--v", v, indptr));
  const Result<DType> k_dtype = WantedDType("--k-dtype", args.k_dtype, args.kv_dtype, k.dtype);
  if (!k_dtype.ok()) return k_dtype.status();
  const Result<DType> v_dtype = WantedDType("--v-dtype", args.v_dtype, args.kv_dtype, v.dtype);
  if (!v_dtype.ok()) return v_dtype.status();

  if (args.global != "auto" && !IsQuantized(*k_dtype) && !IsQuantized(*v_dtype)) {
    return Status::Invalid("--global", fmt::format("'{}', but neither {} nor {} is quantized",
                                                   args.global, Name(*k_dtype), Name(*v_dtype)));
  }

  StoredCache cache;
  Builder builder(args, cache);
  CacheSide k_side;
  CacheSide v_side;
  KVILT_RETURN_IF_ERROR(builder.BuildTable(indptr));
  KVILT_RETURN_IF_ERROR(builder.BuildSide(*k_dtype, k, &cache.memory[0], cache.k_global, k_side));
  KVILT_RETURN_IF_ERROR(builder.BuildSide(*v_dtype, v, &cache.memory[2], cache.v_global, v_side));
  if (args.scale_layout == "interleaved4") {
    if (*v_dtype != DType::kNVFP4) {
      return Status::Invalid("--scale-layout",
                             fmt::format("interleaved4, but V is stored as {}", Name(*v_dtype)));
    }
    v_side.scale_layout = ScaleLayout::kInterleaved4;
    v_side.scale_row_blocks = static_cast<int>(v.shape[2] / kBlockElements);
  }
  cache.segment = builder.Finish(k_side, v_side);

  AppendRequest append;
  append.k = k;
  append.v = v;
  append.cache = cache.segment;
  append.token_indptr = indptr;
  append.four_over_six = args.four_over_six;
  KVILT_RETURN_IF_ERROR(AppendKv(device, append, &cache.k_health, &cache.v_health));
  return cache;
}

Result<DenseKv> Decode(const Device& device, const Segment& segment) {
  const CacheRows rows = RowsOf(segment);
  if (!rows.problems.empty()) return Status::Invalid("page_table", rows.problems.front());
  DenseKv dense;
  dense.indptr = {0};
  for (const std::int64_t length : rows.lengths)
    dense.indptr.push_back(dense.indptr.back() + length);
  const auto place = [&](const CacheSide& side, core::AlignedMemory& memory,
                         TensorView& view) -> Status {
    const SideView source(side);
    Result<core::AlignedMemory> allocated =
        Allocate({rows.tokens, source.heads(), source.head_dim()}, DType::kF32);
    if (!allocated.ok()) return allocated.status();
    memory = std::move(allocated).value();
    view = TensorView::Dense(memory.data(), DType::kF32,
                             {rows.tokens, source.heads(), source.head_dim()});
    return Status::Ok();
  };
  KVILT_RETURN_IF_ERROR(place(segment.k(), dense.k_memory, dense.k));
  KVILT_RETURN_IF_ERROR(place(segment.v(), dense.v_memory, dense.v));
  KVILT_RETURN_IF_ERROR(DequantizeKv(device, segment, dense.k, dense.v));
  return dense;
}

}  // namespace kvilt::cli::run
