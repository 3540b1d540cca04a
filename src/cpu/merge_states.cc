#include "src/cpu/merge_states.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "src/cpu/float_mode.h"
#include "src/cpu/row_format.h"

namespace kvilt::cpu {
namespace {

using contract::i64;
using contract::u8;

constexpr i64 kElementsPerTask = 32768;
constexpr int kPiece = 256;  // Head-dim elements summed at a time.
constexpr double kEmpty = -std::numeric_limits<double>::infinity();

double LseOf(const MergeState& state, i64 row, i64 head) {
  return state.lse[row * state.lse_row_stride + head * state.lse_head_stride];
}

u8* OutOf(const MergeState& state, i64 row, i64 head) {
  return state.out + row * state.row_stride + head * state.head_stride;
}

i64 BytesOf(contract::Format format) { return format == contract::Format::kF32 ? 4 : 2; }

struct Share {
  double weight = 0;     // w_i / sum w
  bool present = false;  // The state is not empty.
};

// Fills the shares of one row and head and returns the lse of the union.
double FillShares(std::span<const MergeState> states, i64 row, i64 head, bool base_two,
                  Share* shares) {
  double most = kEmpty;
  for (const MergeState& state : states) {
    const double lse = LseOf(state, row, head);
    if (lse > most || std::isnan(lse)) most = lse;
  }
  const auto weight_of = [&](const MergeState& state) {
    const double gap = LseOf(state, row, head) - most;
    return base_two ? std::exp2(gap) : std::exp(gap);
  };
  double sum = 0;
  for (std::size_t i = 0; i < states.size(); ++i) {
    shares[i].present = LseOf(states[i], row, head) != kEmpty;
    if (shares[i].present) sum += weight_of(states[i]);
  }
  if (most == kEmpty) return kEmpty;
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (shares[i].present) shares[i].weight = weight_of(states[i]) / sum;
  }
  return most + (base_two ? std::log2(sum) : std::log(sum));
}

// Writes elements [begin, begin + count) of one output row. Reads all states before it writes.
void MergePiece(std::span<const MergeState> states, const Share* shares, const MergeState& result,
                i64 row, i64 head, i64 begin, int count) {
  alignas(64) double sum[kPiece] = {};
  alignas(64) float term[kPiece];
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (!shares[i].present) continue;
    const u8* out = OutOf(states[i], row, head) + begin * BytesOf(states[i].format);
    LoadRow(out, states[i].format, count, term);
    for (int d = 0; d < count; ++d) sum[d] += shares[i].weight * double{term[d]};
  }
  for (int d = 0; d < count; ++d) term[d] = static_cast<float>(sum[d]);
  StoreRow(term, result.format, count, OutOf(result, row, head) + begin * BytesOf(result.format));
}

[[gnu::noinline]] void MergeRows(std::span<const MergeState> states, const MergeState& result,
                                 const MergeShape& shape, i64 begin, i64 end, Share* shares) {
  for (i64 index = begin; index < end; ++index) {
    const i64 row = index / shape.heads;
    const i64 head = index % shape.heads;
    const double lse = FillShares(states, row, head, shape.base_two, shares);
    for (i64 d = 0; d < shape.head_dim; d += kPiece) {
      const int count = static_cast<int>(std::min<i64>(kPiece, shape.head_dim - d));
      MergePiece(states, shares, result, row, head, d, count);
    }
    result.lse[row * result.lse_row_stride + head * result.lse_head_stride] =
        static_cast<float>(lse);
  }
}

}  // namespace

void MergeStates(std::span<const MergeState> states, const MergeState& result,
                 const MergeShape& shape, WorkerPool& pool) {
  const i64 pairs = shape.rows * shape.heads;
  const i64 pair_elements = std::max<i64>(1, shape.head_dim);
  const i64 step = std::max<i64>(1, kElementsPerTask / pair_elements);
  const i64 tasks = contract::CeilDiv(pairs, step);
  std::vector<Share> scratch(states.size() * static_cast<std::size_t>(pool.threads()));
  pool.ParallelFor(tasks, [&](int worker, std::int64_t task) {
    const ScopedFloatMode mode;
    MergeRows(states, result, shape, task * step, std::min(pairs, (task + 1) * step),
              scratch.data() + states.size() * static_cast<std::size_t>(worker));
  });
}

}  // namespace kvilt::cpu
