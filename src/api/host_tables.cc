#include "src/api/host_tables.h"

#include <cstring>

namespace kvilt::api {
namespace {

constexpr std::size_t kAlign = 16;

std::size_t BytesOf(const IndexArray& array) {
  return static_cast<std::size_t>(array.size * StorageBytes(array.dtype));
}

// First table entry of table row `row`; of a ragged cache the row of its first token.
std::int64_t FirstEntry(const Segment& segment, std::int64_t row) {
  if (const RaggedKv* ragged = segment.ragged()) return ragged->indptr[row];
  const PageTable& table = segment.paged()->table;
  return table.indptr.defined() ? table.indptr[row] : row * table.row_stride;
}

}  // namespace

std::size_t HostTables::Append(const void* data, std::size_t bytes) {
  const std::size_t at = bytes_.size();
  bytes_.resize((at + bytes + kAlign - 1) / kAlign * kAlign);
  if (bytes > 0) std::memcpy(bytes_.data() + at, data, bytes);
  parts_.push_back(at);
  return at;
}

std::size_t HostTables::AppendGlobal(const DecodeScale& global) {
  if (global.array == nullptr || global.device.kind != DeviceKind::kCpu) return kNone;
  return Append(global.array, static_cast<std::size_t>(global.array_size) * sizeof(float));
}

void HostTables::AppendBegins(const AttentionRequest& request) {
  const auto segments = request.segments.size();
  bytes_.resize(static_cast<std::size_t>(request.batch()) * segments * sizeof(std::int64_t));
  std::byte* to = bytes_.data();
  for (std::int64_t r = 0; r < request.batch(); ++r) {
    for (const Segment& segment : request.segments) {
      const std::int64_t first = FirstEntry(segment, segment.owners.empty() ? r : 0);
      std::memcpy(to, &first, sizeof(first));
      to += sizeof(first);
    }
  }
  bytes_.resize((bytes_.size() + kAlign - 1) / kAlign * kAlign);
}

void HostTables::Build(const AttentionRequest& request, std::span<const double> rope_frequencies) {
  bytes_.clear();
  parts_.clear();
  indices_.clear();
  k_globals_.clear();
  v_globals_.clear();
  AppendBegins(request);
  q_positions_ = key_positions_ = frequencies_ = kNone;
  if (request.q_positions.defined()) {
    q_positions_ = Append(request.q_positions.data, BytesOf(request.q_positions));
  }
  if (request.rope) {
    const IndexArray& keys = request.rope->key_positions;
    if (keys.defined() && keys.on_host()) key_positions_ = Append(keys.data, BytesOf(keys));
    frequencies_ = Append(rope_frequencies.data(), rope_frequencies.size_bytes());
  }
  for (const Segment& segment : request.segments) {
    const PagedKv* const paged = segment.paged();
    const bool copy = paged != nullptr && paged->table.indices.on_host();
    indices_.push_back(copy ? Append(paged->table.indices.data, BytesOf(paged->table.indices))
                            : kNone);
    k_globals_.push_back(AppendGlobal(segment.k().global));
    v_globals_.push_back(AppendGlobal(segment.v().global));
  }
}

void HostTables::PointInto(const std::byte* base, contract::AttentionArgs& args) const {
  args.table_begins = reinterpret_cast<const contract::i64*>(base);
  if (q_positions_ != kNone) args.params.q_positions = base + q_positions_;
  if (key_positions_ != kNone) args.params.rope.key_positions = base + key_positions_;
  if (frequencies_ != kNone) {
    args.params.rope.frequencies = reinterpret_cast<const double*>(base + frequencies_);
  }
  for (std::size_t s = 0; s < indices_.size(); ++s) {
    if (indices_[s] != kNone) args.segments[s].indices = base + indices_[s];
    args.segments[s].indptr = nullptr;
    const auto global = [&](std::size_t at, contract::SideParams& side) {
      if (at != kNone) side.global = reinterpret_cast<const float*>(base + at);
    };
    global(k_globals_[s], args.segments[s].k);
    global(v_globals_[s], args.segments[s].v);
  }
}

}  // namespace kvilt::api
