#include <algorithm>
#include <limits>

#include "src/plan/cost_model.h"
#include "src/plan/key_runs.h"
#include "src/plan/tensor_check.h"

namespace kvilt::plan {
namespace {

using contract::KeyRange;

std::int64_t SideBytes(const CacheSide& side, std::int64_t head_dim) {
  const DType dtype = side.data.dtype;
  const std::int64_t scales = dtype == DType::kNVFP4 ? head_dim / kBlockElements : 0;
  return RowElements(dtype, head_dim) * StorageBytes(dtype) + scales;
}

// The part of `keys` in segment s of request r.
KeyRange Within(const RequestGeometry& geometry, std::int64_t r, std::size_t s, KeyRange keys) {
  const auto segment = static_cast<std::int64_t>(s);
  KeyRange part;
  part.begin = std::max<contract::i64>(keys.begin, geometry.segment_begin(r, segment));
  part.end = std::min<contract::i64>(keys.end, geometry.segment_begin(r, segment + 1));
  return part;
}

}  // namespace

void KeyCosts::Assign(const AttentionRequest& request, const RequestGeometry& geometry) {
  geometry_ = &geometry;
  dims_ = geometry.head_dim_qk + geometry.head_dim_vo;
  read_rows_.clear();
  key_bytes_.clear();
  for (const Segment& segment : request.segments) {
    read_rows_.push_back(ReadRows(segment.k().data.dtype, segment.v().data.dtype));
    key_bytes_.push_back(geometry.kv_heads * (SideBytes(segment.k(), geometry.head_dim_qk) +
                                              SideBytes(segment.v(), geometry.head_dim_vo)));
  }
}

double KeyCosts::Range(std::int64_t r, KeyRange keys, std::int64_t head_rows) const {
  double cost = 0;
  for (std::size_t s = 0; s < read_rows_.size(); ++s) {
    const KeyRange part = Within(*geometry_, r, s, keys);
    if (part.empty()) continue;
    cost += static_cast<double>(part.end - part.begin) *
            KeyCost(static_cast<double>(head_rows), read_rows_[s], dims_);
  }
  return cost;
}

std::int64_t KeyCosts::KeyAt(std::int64_t r, KeyRange keys, std::int64_t head_rows,
                             double cost) const {
  for (std::size_t s = 0; s < read_rows_.size(); ++s) {
    const KeyRange part = Within(*geometry_, r, s, keys);
    if (part.empty()) continue;
    const double per_key = KeyCost(static_cast<double>(head_rows), read_rows_[s], dims_);
    const double whole = static_cast<double>(part.end - part.begin) * per_key;
    if (cost <= whole) return part.begin + static_cast<std::int64_t>(cost / per_key);
    cost -= whole;
  }
  return keys.end;
}

std::int64_t KeyCosts::Bytes(std::int64_t r, KeyRange keys) const {
  std::int64_t bytes = 0;
  if (key_bytes_.size() == 1) {
    const bool fits =
        Multiply(std::max<std::int64_t>(0, keys.end - keys.begin), key_bytes_[0], bytes);
    return fits ? bytes : std::numeric_limits<std::int64_t>::max();
  }
  for (std::size_t s = 0; s < key_bytes_.size(); ++s) {
    const KeyRange part = Within(*geometry_, r, s, keys);
    std::int64_t more = 0;
    if (part.empty()) continue;
    if (!Multiply(part.end - part.begin, key_bytes_[s], more) || !Add(bytes, more, bytes)) {
      return std::numeric_limits<std::int64_t>::max();
    }
  }
  return bytes;
}

}  // namespace kvilt::plan
