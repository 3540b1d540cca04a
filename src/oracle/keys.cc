#include "src/oracle/keys.h"

#include <algorithm>

#include "src/core/check.h"
#include "src/oracle/decode.h"

namespace kvilt::oracle {
namespace {

void AddPagedKeys(const Segment& segment, std::int64_t row, std::vector<KeyPlace>& keys) {
  const PagedKv& paged = *segment.paged();
  const PageTable& table = paged.table;
  const TensorView& data = paged.k.data;
  const std::int64_t page_size = data.shape[paged.k.layout == KvLayout::kNHD ? 1 : 2];
  const std::int64_t first = table.indptr.defined() ? table.indptr[row] : row * table.row_stride;
  std::int64_t length = 0;
  if (table.kv_len.defined()) {
    length = table.kv_len[row];
  } else {
    const std::int64_t pages = table.indptr[row + 1] - first;
    if (pages > 0) length = (pages - 1) * page_size + table.last_page_len[row];
  }
  for (std::int64_t t = 0; t < length; ++t) {
    const std::int64_t page = table.indices[first + t / page_size];
    KVILT_CHECK(page >= 0 && page < data.shape[0]);
    keys.push_back({&segment, page, t % page_size});
  }
}

std::vector<double> Row(const CacheSide& side, const KeyPlace& place, std::int64_t head) {
  const bool paged = place.segment->paged() != nullptr;
  const bool nhd = side.layout == KvLayout::kNHD;
  const auto address = [&](const TensorView& view, std::int64_t token, std::int64_t element) {
    std::vector<std::int64_t> index;
    if (paged) index.push_back(place.page);
    if (nhd) index.push_back(token);
    index.push_back(head);
    if (!nhd) index.push_back(token);
    index.push_back(element);
    return At(view, index);
  };
  const std::byte* data = address(side.data, place.token, 0);
  const std::int64_t stored = side.data.shape[side.data.rank - 1];
  std::vector<double> values;
  if (side.data.dtype != DType::kNVFP4) {
    values = DecodeRow(side.data.dtype, data, stored);
  } else {
    const std::int64_t head_dim = 2 * stored;
    values = DecodeNvfp4Row(data, head_dim, [&](std::int64_t s) {
      if (side.scale_layout == ScaleLayout::kLinear) return address(side.scales, place.token, s);
      // Four tokens by four scales change places: SEMANTICS section 1, interleaved4.
      const std::int64_t blocks = side.scale_row_blocks, t = place.token;
      return address(side.scales, 4 * (t / 4) + s / (blocks / 4), (s % (blocks / 4)) * 4 + t % 4);
    });
  }
  const DecodeScale& global = side.global;
  double multiplier = global.value;
  if (global.array != nullptr) multiplier = global.array[global.array_size == 1 ? 0 : head];
  for (double& value : values) value *= multiplier;
  return values;
}

}  // namespace

std::vector<KeyPlace> KeysOf(const AttentionRequest& request, std::int64_t r) {
  std::vector<KeyPlace> keys;
  for (const Segment& segment : request.segments) {
    std::int64_t row = r;
    if (!segment.owners.empty()) {
      const auto& owners = segment.owners;
      if (std::find(owners.begin(), owners.end(), r) == owners.end()) continue;
      row = 0;
    }
    if (segment.paged() != nullptr) {
      AddPagedKeys(segment, row, keys);
      continue;
    }
    const RaggedKv& ragged = *segment.ragged();
    for (std::int64_t t = ragged.indptr[row]; t < ragged.indptr[row + 1]; ++t) {
      keys.push_back({&segment, 0, t});
    }
  }
  return keys;
}

std::vector<double> KeyRow(const KeyPlace& place, std::int64_t kv_head) {
  return Row(place.segment->k(), place, kv_head);
}
std::vector<double> ValueRow(const KeyPlace& place, std::int64_t kv_head) {
  return Row(place.segment->v(), place, kv_head);
}

std::int64_t KvHeads(const AttentionRequest& request) {
  const Segment& segment = request.segments.front();
  const CacheSide& k = segment.k();
  const int head_axis = (segment.paged() != nullptr ? 1 : 0) + (k.layout == KvLayout::kNHD ? 1 : 0);
  return k.data.shape[head_axis];
}

}  // namespace kvilt::oracle
