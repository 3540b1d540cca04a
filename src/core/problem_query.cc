#include "src/core/problem_query.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "src/core/problem_values.h"
#include "src/core/random.h"

namespace kvilt::core {
namespace {

// Kinds of content, told apart in hashes. Caches use 1 and 2.
enum : std::uint64_t { kQuery = 11, kMaskBit, kMaskRow, kQueryPosition, kKeyPosition };

std::int64_t BatchRows(const Problem& problem) { return PrefixSums(problem.q_len).back(); }

}  // namespace

std::uint64_t ContentId(const Problem& problem, std::int64_t request) {
  const std::int64_t id =
      problem.ids.empty() ? request : problem.ids[static_cast<std::size_t>(request)];
  return HashOf(problem.seed, id, 3);
}

std::vector<std::int64_t> PrefixSums(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int64_t> sums = {0};
  for (std::int64_t length : lengths) sums.push_back(sums.back() + length);
  return sums;
}

// --------------------------------------------------------------------------------- padded rows

PaddedRows::PaddedRows(DType dtype, std::int64_t rows, std::int64_t heads, std::int64_t row,
                       std::int64_t head_pad, std::int64_t row_pad, bool addresses_only)
    : dtype_(dtype),
      rows_(rows),
      heads_(heads),
      row_(row),
      head_stride_(row + head_pad),
      row_stride_(heads * (row + head_pad) + row_pad) {
  const auto bytes =
      static_cast<std::size_t>(2 * kGuardBytes + rows * row_stride_ * StorageBytes(dtype));
  memory_ = addresses_only ? AlignedMemory::AddressesOnly(bytes) : AlignedMemory(bytes);
}

TensorView PaddedRows::view(int rank) const {
  TensorView view;
  view.data = memory_.data() + kGuardBytes;
  view.dtype = dtype_;
  view.rank = rank;
  const std::int64_t shape[] = {rows_, heads_, row_};
  const std::int64_t stride[] = {row_stride_, head_stride_, 1};
  std::copy_n(shape, rank, view.shape);
  std::copy_n(stride, rank, view.stride);
  return view;
}

std::byte* PaddedRows::row(std::int64_t r, std::int64_t head) const {
  return memory_.data() + kGuardBytes +
         (r * row_stride_ + head * head_stride_) * StorageBytes(dtype_);
}

std::optional<std::int64_t> PaddedRows::FirstTouched(std::int64_t rows, std::uint8_t byte) const {
  const std::int64_t size = StorageBytes(dtype_);
  const std::byte* begin = memory_.data();
  const std::byte* end = begin + memory_.size_bytes();
  // Walks from one owned row to the next; what lies between must be untouched.
  const auto check = [&](const std::byte* from,
                         const std::byte* to) -> std::optional<std::int64_t> {
    for (; from < to; ++from) {
      if (*from != static_cast<std::byte>(byte)) return from - (begin + kGuardBytes);
    }
    return std::nullopt;
  };
  const std::byte* at = begin;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t head = 0; head < heads_; ++head) {
      const std::byte* owned = row(r, head);
      if (const auto touched = check(at, owned)) return touched;
      at = owned + row_ * size;
    }
  }
  return check(at, end);
}

// ---------------------------------------------------------------------------- masks, positions

MaskMemory MakeMask(const Problem& problem) {
  MaskMemory mask;
  // With mask_indptr the bits of the first request begin behind a few foreign bytes.
  std::vector<std::int64_t> indptr = {problem.mask_indptr ? 3 : 0};
  mask.bits.assign(static_cast<std::size_t>(indptr.back()), 0xFF);
  const bool custom = problem.mask == MaskMode::kCustom;
  if (!custom && problem.mask != MaskMode::kTree) return {};
  for (std::int64_t r = 0; r < problem.batch(); ++r) {
    const std::int64_t q_len = problem.q_len[static_cast<std::size_t>(r)];
    const std::int64_t kv_len = problem.kv_len[static_cast<std::size_t>(r)];
    const std::int64_t columns = custom ? kv_len : q_len;
    const std::uint64_t id = ContentId(problem, r);
    const std::int64_t begin = indptr.back();
    mask.bits.resize(static_cast<std::size_t>(begin + (q_len * columns + 7) / 8), 0);
    for (std::int64_t i = 0; i < q_len; ++i) {
      const std::int64_t from_end = q_len - 1 - i;
      // Some rows see nothing at all; a tree row always sees itself.
      const bool empty = custom && HashOf(id, from_end, kMaskRow) % 11 == 0;
      for (std::int64_t j = 0; j < columns; ++j) {
        const bool sees = custom ? HashOf(id, from_end, j, kMaskBit) % 4 != 0
                                 : j == i || (j < i && HashOf(id, from_end, j, kMaskBit) % 2 == 0);
        if (empty || !sees) continue;
        const std::int64_t index = i * columns + j;
        mask.bits[static_cast<std::size_t>(begin + index / 8)] |=
            static_cast<std::uint8_t>(1 << (index % 8));
      }
    }
    indptr.push_back(static_cast<std::int64_t>(mask.bits.size()));
  }
  mask.indptr = IndexMemory(std::move(indptr), problem.index);
  return mask;
}

std::vector<std::int64_t> MakeQueryPositions(const Problem& problem) {
  std::vector<std::int64_t> positions;
  for (std::int64_t r = 0; r < problem.batch(); ++r) {
    const std::int64_t q_len = problem.q_len[static_cast<std::size_t>(r)];
    const std::int64_t delta = problem.kv_len[static_cast<std::size_t>(r)] - q_len;
    for (std::int64_t i = 0; i < q_len; ++i) {
      const PositionSpec& spec = problem.q_positions;
      const std::uint64_t hash = HashOf(ContentId(problem, r), q_len - 1 - i, kQueryPosition);
      const bool random = spec.kind == PositionSpec::Kind::kRandom;
      positions.push_back(
          random ? static_cast<std::int64_t>(hash % static_cast<std::uint64_t>(spec.value + 1))
                 : i + delta + spec.value);
    }
  }
  // The array has an entry for each row of q; those that no request owns are not looked at.
  positions.resize(positions.size() + static_cast<std::size_t>(problem.extra_rows), 0);
  return positions;
}

std::vector<std::int64_t> MakeKeyPositions(const Problem& problem) {
  std::vector<std::int64_t> positions;
  const PositionSpec spec = problem.rope->key_positions;
  for (std::int64_t r = 0; r < problem.batch(); ++r) {
    for (std::int64_t j = 0; j < problem.kv_len[static_cast<std::size_t>(r)]; ++j) {
      const bool shared = j < problem.prefix;  // So that shared keys agree on their position.
      const std::uint64_t id = shared ? HashOf(problem.seed, 7) : ContentId(problem, r);
      const bool random = spec.kind == PositionSpec::Kind::kRandom;
      positions.push_back(
          random ? static_cast<std::int64_t>(HashOf(id, j, kKeyPosition) %
                                             static_cast<std::uint64_t>(spec.value + 1))
                 : j + spec.value);
    }
  }
  return positions;
}

std::vector<float> MakeSlopes(const Problem& problem) {
  std::vector<float> slopes;
  slopes.reserve(static_cast<std::size_t>(problem.q_heads));
  for (int head = 0; head < problem.q_heads; ++head) {
    slopes.push_back(
        std::exp2(-8.0f * static_cast<float>(head + 1) / static_cast<float>(problem.q_heads)));
  }
  return slopes;
}

std::vector<float> MakeSinks(const Problem& problem) {
  std::vector<float> sinks;
  sinks.reserve(static_cast<std::size_t>(problem.q_heads));
  for (int head = 0; head < problem.q_heads; ++head) {
    sinks.push_back(*problem.sink +
                    0.5f * static_cast<float>((head * 7) % 5 - 2) * static_cast<float>(head != 0));
  }
  return sinks;
}

std::vector<std::uint8_t> UnseenKeys(const Problem& problem, std::int64_t request,
                                     const std::vector<std::int64_t>& q_positions,
                                     const MaskMemory& mask) {
  const auto at = static_cast<std::size_t>(request);
  const std::int64_t q_len = problem.q_len[at], kv_len = problem.kv_len[at];
  const std::int64_t delta = kv_len - q_len;
  const bool keys = problem.poison == PoisonForm::kKeys;
  if (problem.poison == PoisonForm::kOff) return {};
  const bool positional =
      problem.mask == MaskMode::kCausal || problem.window_left >= 0 || problem.window_right >= 0;
  if (!keys && !positional) return {};
  const std::int64_t first_row = PrefixSums(problem.q_len)[at];
  std::vector<std::uint8_t> unseen(static_cast<std::size_t>(kv_len), 1);
  for (std::int64_t i = 0; i < q_len; ++i) {
    const std::int64_t p = problem.q_positions.kind == PositionSpec::Kind::kNone
                               ? i + delta
                               : q_positions[static_cast<std::size_t>(first_row + i)];
    std::int64_t begin = 0, end = kv_len;
    if (problem.mask == MaskMode::kCausal) end = std::min(end, i + delta + 1);
    if (problem.window_left >= 0) begin = std::max(begin, p - problem.window_left);
    if (problem.window_right >= 0) end = std::min(end, p + problem.window_right + 1);
    for (std::int64_t j = begin; j < end; ++j) {
      bool sees = true;
      if (keys && problem.mask == MaskMode::kCustom) sees = mask.Allows(request, i * kv_len + j);
      if (keys && problem.mask == MaskMode::kTree && j >= delta) {
        sees = mask.Allows(request, i * q_len + j - delta);
      }
      if (sees) unseen[static_cast<std::size_t>(j)] = 0;
    }
  }
  if (std::find(unseen.begin(), unseen.end(), 1) == unseen.end()) return {};
  return unseen;
}

// ------------------------------------------------------------------------------------- queries

float FillQueries(const Problem& problem, const std::vector<double>& k_rms, PaddedRows& q,
                  PaddedRows& q_scales) {
  const double sm_scale = problem.sm_scale.value_or(
      static_cast<float>(1.0 / std::sqrt(static_cast<double>(problem.head_dim_qk))));
  const auto wanted = [&](std::int64_t kv_head) {  // Root mean square of a dequantized q element.
    const double rms =
        problem.sigma / (std::fabs(sm_scale) * k_rms[static_cast<std::size_t>(kv_head)] *
                         std::sqrt(static_cast<double>(problem.head_dim_qk)));
    return std::isfinite(rms) && rms < 1e15 ? rms : 1.0;
  };
  float q_scale = problem.q_scale.value_or(1.0f);
  // A quantized Q keeps its stored values around 2; the odd factor makes the scale matter.
  if (!problem.q_scale && IsQuantized(problem.q_dtype) && wanted(0) > 0) {
    q_scale = static_cast<float>(wanted(0) / 2.2);
  }
  const std::int64_t group = std::max(1, problem.q_heads / problem.kv_heads);
  const std::int64_t rows = BatchRows(problem);
  std::int64_t row = 0;
  for (std::int64_t r = 0; r < problem.batch() && rows > 0; ++r) {
    const std::int64_t q_len = problem.q_len[static_cast<std::size_t>(r)];
    for (std::int64_t i = 0; i < q_len; ++i, ++row) {
      for (std::int64_t head = 0; head < problem.q_heads; ++head) {
        std::byte* to = q.row(row, head);
        const auto scale_at = [&](std::int64_t block) { return q_scales.row(row, head) + block; };
        if (problem.data == DataForm::kExtreme) {
          FillConstantRow(problem.q_dtype, 64.0, problem.head_dim_qk, to, scale_at);
          continue;
        }
        const std::int64_t kv_head = std::min<std::int64_t>(head / group, problem.kv_heads - 1);
        const double rms = wanted(kv_head) / std::fabs(q_scale);
        Random random(HashOf(ContentId(problem, r), q_len - 1 - i, head, kQuery));
        FillQueryRow(problem.q_dtype, rms, problem.head_dim_qk, random, to, scale_at);
      }
    }
  }
  return q_scale;
}

}  // namespace kvilt::core
