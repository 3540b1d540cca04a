#include "src/core/problem_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "src/core/check.h"

namespace kvilt::core {
namespace {

constexpr std::int64_t kAlignment = 16;
constexpr std::int64_t kUnusedId = std::numeric_limits<std::int32_t>::max();

std::int64_t RoundUp(std::int64_t a, std::int64_t b) { return (a + b - 1) / b * b; }

// True when a * b (both >= 0) stays below 2^62, so that sums of a few such terms do not overflow.
bool Fits(std::int64_t a, std::int64_t b) { return a == 0 || b <= (std::int64_t{1} << 62) / a; }

bool IsNhd(const SideSpec& side) { return side.layout == KvLayout::kNHD; }

}  // namespace

// ---------------------------------------------------------------------------------- layout

CacheMemory::Strides CacheMemory::DenseStrides(const Side& side, std::int64_t pitch) const {
  const std::int64_t pad = side.spec.page_pad * pitch;
  const bool paged = spec_.cache == CacheKind::kPaged;
  Strides strides;
  if (IsNhd(side.spec)) {
    strides.head = pitch;
    strides.token = kv_heads_ * pitch;
    strides.page = page_rows_ * strides.token + (paged ? pad : 0);
  } else {
    strides.token = pitch;
    strides.head = page_rows_ * pitch + (paged ? 0 : pad);
    strides.page = kv_heads_ * strides.head + (paged ? pad : 0);
  }
  return strides;
}

// The stride of the outermost axis: pages, or the first axis of a ragged cache.
std::int64_t& CacheMemory::UnitStride(const Side& side, Strides& strides) const {
  if (spec_.cache == CacheKind::kPaged) return strides.page;
  return IsNhd(side.spec) ? strides.token : strides.head;
}

std::int64_t CacheMemory::Units(const Side& side) const {
  if (spec_.cache == CacheKind::kPaged) return pages_;
  return IsNhd(side.spec) ? page_rows_ : kv_heads_;
}

void CacheMemory::AddMemory(std::vector<std::span<std::byte>>& blocks) {
  for (AlignedMemory& pool : pools_) {
    if (pool.data() != nullptr) blocks.emplace_back(pool.data(), pool.size_bytes());
  }
  if (!indices_.bytes().empty()) blocks.push_back(indices_.bytes());
}

Status CacheMemory::Allocate(int pool, std::int64_t bytes) {
  if (!pools_[pool].data()) {
    const auto size = static_cast<std::size_t>(bytes);
    pools_[pool] = addresses_only_ ? AlignedMemory::AddressesOnly(size) : AlignedMemory(size);
  }
  if (pools_[pool].data()) return {};
  return Status::Exhausted("problem", fmt::format("no {} bytes of memory for a cache", bytes));
}

Status CacheMemory::LayOut(const Problem& problem) {
  const std::int64_t unit_rows = page_rows_ + std::max(k_.spec.page_pad, v_.spec.page_pad);
  for (Side* side : {&k_, &v_}) {
    const std::int64_t row_bytes = (side->head_dim * 2 + side->spec.row_pad + side->spec.shift) * 8;
    if (side->spec.row_pad > (1 << 30) || side->spec.shift > (1 << 30) ||
        !Fits(pages_, unit_rows) || !Fits(pages_ * unit_rows, kv_heads_ * row_bytes)) {
      return Status::Invalid("problem", "a cache beyond 2^62 bytes, expected one that can exist");
    }
  }
  std::int64_t bytes[4] = {};
  for (Side* side : {&k_, &v_}) {
    const std::int64_t element = StorageBytes(side->spec.dtype);
    const std::int64_t row = RowElements(side->spec.dtype, side->head_dim);
    const std::int64_t blocks = side->head_dim / kBlockElements;
    const bool scaled = side->spec.dtype == DType::kNVFP4;
    const bool one_row = scaled && problem.pool == PoolForm::kRows;
    side->pool = side == &k_ ? 0 : 1;
    side->scale_pool = side->pool + 2;
    side->data = DenseStrides(*side, (row + (one_row ? blocks : 0) + side->spec.row_pad) * element);
    side->data.base = side->spec.shift * element;
    side->scales = DenseStrides(*side, blocks + side->spec.row_pad);
    side->scales.base = side->spec.shift;
    if (one_row) {
      side->scale_pool = side->pool;
      side->scales = side->data;
      side->scales.base += row;
    }
    bytes[side->pool] = Units(*side) * UnitStride(*side, side->data) + side->data.base;
    if (scaled && !one_row) {
      bytes[side->scale_pool] = Units(*side) * UnitStride(*side, side->scales) + side->scales.base;
      pool_of_scales_[side->scale_pool] = true;
    }
  }
  // K and V in turn, [pages, 2, ...]; possible when both have the same outermost axis.
  const bool same_units = spec_.cache == CacheKind::kPaged || k_.spec.layout == v_.spec.layout;
  const auto interleave = [&](Strides Side::*strides, int k_pool, int v_pool) {
    std::int64_t& k_unit = UnitStride(k_, k_.*strides);
    std::int64_t& v_unit = UnitStride(v_, v_.*strides);
    // A shifted side takes its shift with it in every unit.
    const std::int64_t k_bytes = RoundUp(k_unit + (k_.*strides).base, kAlignment);
    const std::int64_t both = k_bytes + RoundUp(v_unit + (v_.*strides).base, kAlignment);
    bytes[k_pool] = Units(k_) * both;
    bytes[v_pool] = 0;
    k_unit = v_unit = both;
    (v_.*strides).base += k_bytes;
  };
  if (problem.pool == PoolForm::kKv && same_units) {
    interleave(&Side::data, 0, 1);
    v_.pool = 0;
    if (bytes[2] > 0 && bytes[3] > 0) {
      interleave(&Side::scales, 2, 3);
      v_.scale_pool = 2;
    }
  }
  for (int pool = 0; pool < 4; ++pool) {
    const bool used = pool == k_.pool || pool == v_.pool || bytes[pool] > 0;
    if (used) KVILT_RETURN_IF_ERROR(Allocate(pool, bytes[pool]));
  }
  return {};
}

void CacheMemory::LayOutTable(const Problem& problem, std::uint64_t seed) {
  const std::int64_t rows = static_cast<std::int64_t>(spec_.lengths.size());
  table_ = problem.table;
  last_page_len_ = problem.lengths == LengthForm::kLastPageLen && table_ == TableForm::kCsr;
  std::vector<std::int64_t> counts, last;
  std::int64_t used = 0, longest = 0;
  for (std::int64_t length : spec_.lengths) {
    counts.push_back((length + spec_.page_size - 1) / spec_.page_size);
    last.push_back(length == 0 ? 0 : length - (counts.back() - 1) * spec_.page_size);
    used += counts.back();
    longest = std::max(longest, counts.back());
  }
  pages_ = used + 2 + std::min<std::int64_t>(used / 8, 16);  // Some pages belong to nobody.
  std::vector<std::int64_t> ids(static_cast<std::size_t>(pages_));
  std::iota(ids.begin(), ids.end(), 0);
  if (problem.permute_pages) {
    Random random(HashOf(seed, 5));
    for (std::int64_t i = pages_ - 1; i > 0; --i) {
      std::swap(ids[static_cast<std::size_t>(i)],
                ids[static_cast<std::size_t>(random.Below(i + 1))]);
    }
  }
  // Tables have room that no length covers; what stands there is no page id.
  row_stride_ = table_ == TableForm::kPadded ? longest + 1 : 0;
  std::vector<std::int64_t> indptr = {0}, indices;
  std::int64_t next = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < counts[static_cast<std::size_t>(r)]; ++i) {
      indices.push_back(ids[static_cast<std::size_t>(next++)]);
    }
    if (table_ == TableForm::kPadded) {
      indices.resize(static_cast<std::size_t>((r + 1) * row_stride_), kUnusedId);
    } else if (!last_page_len_ && r % 2 == 0) {
      indices.push_back(kUnusedId);
    }
    indptr.push_back(static_cast<std::int64_t>(indices.size()));
  }
  indices_ = IndexMemory(std::move(indices), problem.index);
  indptr_ = IndexMemory(std::move(indptr), problem.index);
  lengths_ = IndexMemory(last_page_len_ ? last : spec_.lengths, problem.index);
}

Result<CacheMemory> CacheMemory::Create(const Problem& problem, const CacheSpec& spec,
                                        std::uint64_t seed, bool addresses_only) {
  CacheMemory memory;
  memory.addresses_only_ = addresses_only;
  memory.spec_ = spec;
  memory.kv_heads_ = problem.kv_heads;
  memory.global_by_pointer_ = problem.global_by_pointer;
  memory.allow_unusual_scale_ = problem.allow_unusual_scale;
  memory.k_.spec = spec.k;
  memory.v_.spec = spec.v;
  memory.k_.head_dim = problem.head_dim_qk;
  memory.v_.head_dim = problem.head_dim_vo;
  for (Side* side : {&memory.k_, &memory.v_}) {
    side->global = side->spec.global;
    side->table = TableFor(side->spec.dtype, side->global.front(), problem.data);
    if (side->spec.dtype == DType::kNVFP4 && side->head_dim % kBlockElements != 0) {
      return Status::Invalid(
          "d", fmt::format("{} for nvfp4, expected a multiple of 16", side->head_dim));
    }
  }
  if (spec.cache == CacheKind::kPaged) {
    memory.page_rows_ = spec.page_size;
    memory.LayOutTable(problem, seed);
  } else {
    std::vector<std::int64_t> indptr = {3};  // Rows before the first and behind the last.
    for (std::int64_t length : spec.lengths) indptr.push_back(indptr.back() + length);
    memory.page_rows_ = RoundUp(indptr.back() + 2, 4);
    memory.indptr_ = IndexMemory(std::move(indptr), problem.index);
  }
  const bool interleaved =
      problem.scale_layout == ScaleLayout::kInterleaved4 && spec.v.dtype == DType::kNVFP4;
  if (interleaved && (problem.head_dim_vo % 64 != 0 || memory.page_rows_ % 4 != 0)) {
    return Status::Invalid("scale_layout",
                           fmt::format("interleaved4 with page={} and d={}, expected a page of a "
                                       "multiple of 4 and d of a multiple of 64",
                                       memory.page_rows_, problem.head_dim_vo));
  }
  // Asked for where no scales are: passed on, so that the refusal can be seen.
  const bool misplaced = problem.scale_layout == ScaleLayout::kInterleaved4 &&
                         spec.v.dtype != DType::kNVFP4 && problem.segments.empty();
  if (interleaved || misplaced) memory.v_.scale_layout = ScaleLayout::kInterleaved4;
  KVILT_RETURN_IF_ERROR(memory.LayOut(problem));
  return memory;
}

// ------------------------------------------------------------------------------------ views

TensorView CacheMemory::Tensor(const Side& side, DType dtype, std::int64_t row,
                               const Strides& strides, int pool) const {
  TensorView view;
  view.data = pools_[pool].data() + strides.base;
  view.dtype = dtype;
  const auto add = [&](std::int64_t extent, std::int64_t stride_bytes) {
    view.shape[view.rank] = extent;
    view.stride[view.rank++] = stride_bytes / StorageBytes(dtype);
  };
  if (spec_.cache == CacheKind::kPaged) add(pages_, strides.page);
  if (IsNhd(side.spec)) add(page_rows_, strides.token);
  add(kv_heads_, strides.head);
  if (!IsNhd(side.spec)) add(page_rows_, strides.token);
  add(row, StorageBytes(dtype));
  return view;
}

CacheSide CacheMemory::View(const Side& side) const {
  CacheSide view;
  const DType dtype = side.spec.dtype;
  view.layout = side.spec.layout;
  view.scale_layout = side.scale_layout;
  view.data = Tensor(side, dtype, RowElements(dtype, side.head_dim), side.data, side.pool);
  if (dtype == DType::kNVFP4) {
    view.scales =
        Tensor(side, DType::kE4M3, side.head_dim / kBlockElements, side.scales, side.scale_pool);
    if (side.scale_layout == ScaleLayout::kInterleaved4) {
      view.scale_row_blocks = static_cast<int>(side.head_dim / kBlockElements);
    }
  }
  if (side.global.size() > 1 || global_by_pointer_) {
    view.global.array = side.global.data();
    view.global.array_size = static_cast<std::int64_t>(side.global.size());
  } else {
    view.global.value = side.global.front();
  }
  view.global.allow_unusual = allow_unusual_scale_;
  return view;
}

Segment CacheMemory::segment() const {
  Segment segment;
  segment.owners = spec_.owners;
  if (spec_.cache == CacheKind::kRagged) {
    segment.kv = RaggedKv{View(k_), View(v_), indptr_.view()};
    return segment;
  }
  PagedKv paged{View(k_), View(v_), {}};
  if (table_ == TableForm::kCsr) paged.table.indptr = indptr_.view();
  paged.table.row_stride = row_stride_;
  paged.table.indices = indices_.view();
  (last_page_len_ ? paged.table.last_page_len : paged.table.kv_len) = lengths_.view();
  segment.kv = paged;
  return segment;
}

std::int64_t CacheMemory::kv_bytes() const {
  std::int64_t row_bytes = 0;
  for (const Side* side : {&k_, &v_}) {
    row_bytes += RowElements(side->spec.dtype, side->head_dim) * StorageBytes(side->spec.dtype);
    if (side->spec.dtype == DType::kNVFP4) row_bytes += side->head_dim / kBlockElements;
  }
  const auto& lengths = spec_.lengths;
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}) * kv_heads_ * row_bytes;
}

// ---------------------------------------------------------------------------------- content

std::byte* CacheMemory::ScaleAt(const Side& side, std::int64_t page, std::int64_t token,
                                std::int64_t head, std::int64_t block) const {
  std::int64_t row = token, column = block;
  if (side.scale_layout == ScaleLayout::kInterleaved4) {
    const std::int64_t quarter = side.head_dim / kBlockElements / 4;
    row = 4 * (token / 4) + block / quarter;
    column = block % quarter * 4 + token % 4;
  }
  return pools_[side.scale_pool].data() + side.scales.base + page * side.scales.page +
         row * side.scales.token + head * side.scales.head + column;
}

void CacheMemory::FillSide(const Side& side, std::uint64_t kind, DataForm form,
                           const std::vector<RowContent>& rows) {
  const bool paged = spec_.cache == CacheKind::kPaged;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const RowContent& content = rows[r];
    const std::int64_t first = table_ == TableForm::kPadded
                                   ? static_cast<std::int64_t>(r) * row_stride_
                                   : indptr_.values()[r];
    for (std::int64_t t = 0; t < spec_.lengths[r]; ++t) {
      if (!content.unseen.empty() && content.unseen[static_cast<std::size_t>(t)]) continue;
      const std::int64_t page =
          paged ? indices_.values()[static_cast<std::size_t>(first + t / page_rows_)] : 0;
      const std::int64_t token = paged ? t % page_rows_ : first + t;
      const std::int64_t position = content.first_position + t;
      const std::uint64_t id = position < content.prefix ? content.prefix_id : content.id;
      std::byte* row = pools_[side.pool].data() + side.data.base + page * side.data.page +
                       token * side.data.token;
      for (std::int64_t head = 0; head < kv_heads_; ++head, row += side.data.head) {
        const auto scale_at = [&](std::int64_t block) {
          return ScaleAt(side, page, token, head, block);
        };
        if (form == DataForm::kExtreme) {
          FillConstantRow(side.spec.dtype, kind == 1 ? -64.0 : 1.0, side.head_dim, row, scale_at);
        } else {
          const std::uint64_t hash =
              MixBits(MixBits(id + kind) ^ static_cast<std::uint64_t>(position * 4096 + head));
          FillRow(*side.table, hash, position, side.head_dim, row, scale_at);
        }
      }
    }
  }
}

void CacheMemory::Fill(DataForm form, const std::vector<RowContent>& rows, std::uint8_t data_byte,
                       std::uint8_t scale_byte) {
  for (int pool = 0; pool < 4; ++pool) {
    pools_[pool].Fill(pool_of_scales_[pool] ? scale_byte : data_byte);
  }
  FillSide(k_, 1, form, rows);
  FillSide(v_, 2, form, rows);
}

}  // namespace kvilt::core
