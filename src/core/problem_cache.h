// One segment of a Problem in memory: its pools, its page table, and the Segment that borrows them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvilt/kv_cache.h"
#include "kvilt/status.h"
#include "src/core/aligned_memory.h"
#include "src/core/problem.h"
#include "src/core/problem_values.h"

namespace kvilt::core {

// A segment with everything that SegmentSpec leaves to the problem filled in.
struct CacheSpec {
  SideSpec k;
  SideSpec v;
  CacheKind cache = CacheKind::kPaged;
  std::int64_t page_size = 16;
  std::vector<std::int32_t> owners;
  std::vector<std::int64_t> lengths;  // Keys of each table row.
};

// What the keys of one table row hold.
struct RowContent {
  std::uint64_t id = 0;         // Hash of what tells the content of this row from that of others.
  std::uint64_t prefix_id = 0;  // The same for keys whose position is below `prefix`.
  std::int64_t prefix = 0;
  std::int64_t first_position = 0;   // Position of the row's first key.
  std::vector<std::uint8_t> unseen;  // 1 = not written, stays poison. Empty = all are written.
};

class CacheMemory {
 public:
  CacheMemory(CacheMemory&&) = default;
  CacheMemory& operator=(CacheMemory&&) = default;

  // `addresses_only`: see BuildProblemShape.
  // Errors: kInvalidArgument for what has no place in memory, kResourceExhausted.
  static Result<CacheMemory> Create(const Problem& problem, const CacheSpec& spec,
                                    std::uint64_t seed, bool addresses_only = false);

  // Everything becomes `data_byte` / `scale_byte`, then the rows get their content.
  void Fill(DataForm form, const std::vector<RowContent>& rows, std::uint8_t data_byte,
            std::uint8_t scale_byte);

  Segment segment() const;
  const ValueTable& k_table() const { return *k_.table; }
  std::int64_t kv_bytes() const;
  // Adds each pool, and the page ids.
  void AddMemory(std::vector<std::span<std::byte>>& blocks);

 private:
  // Bytes from one index to the next along each axis, and from the pool's base to the first row.
  struct Strides {
    std::int64_t base = 0;
    std::int64_t page = 0;
    std::int64_t token = 0;
    std::int64_t head = 0;
  };
  struct Side {
    SideSpec spec;
    std::int64_t head_dim = 0;
    ScaleLayout scale_layout = ScaleLayout::kLinear;
    int pool = 0;        // Index of the memory that holds the data,
    int scale_pool = 0;  // and the scales.
    Strides data;
    Strides scales;
    std::shared_ptr<const ValueTable> table;
    std::vector<float> global;
  };

  CacheMemory() = default;
  Status LayOut(const Problem& problem);
  void LayOutTable(const Problem& problem, std::uint64_t seed);
  Strides DenseStrides(const Side& side, std::int64_t pitch_bytes) const;
  std::int64_t& UnitStride(const Side& side, Strides& strides) const;
  std::int64_t Units(const Side& side) const;
  Status Allocate(int pool, std::int64_t bytes);
  CacheSide View(const Side& side) const;
  TensorView Tensor(const Side& side, DType dtype, std::int64_t row, const Strides& strides,
                    int pool) const;
  std::byte* ScaleAt(const Side& side, std::int64_t page, std::int64_t token, std::int64_t head,
                     std::int64_t block) const;
  void FillSide(const Side& side, std::uint64_t kind, DataForm form,
                const std::vector<RowContent>& rows);

  CacheSpec spec_;
  int kv_heads_ = 0;
  bool global_by_pointer_ = false;
  bool allow_unusual_scale_ = false;
  std::int64_t pages_ = 1;      // Ragged: one "page" of all tokens.
  std::int64_t page_rows_ = 0;  // Tokens of a page; ragged: the total axis.
  Side k_;
  Side v_;
  AlignedMemory pools_[4];
  bool pool_of_scales_[4] = {};
  bool addresses_only_ = false;
  TableForm table_ = TableForm::kCsr;
  std::int64_t row_stride_ = 0;
  IndexMemory indptr_;
  IndexMemory indices_;
  IndexMemory lengths_;
  bool last_page_len_ = false;
};

}  // namespace kvilt::core
