#include "src/cpu/write_results.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "src/contract/formats.h"
#include "src/contract/softmax.h"

namespace kvilt::cpu {
namespace {

using contract::AttentionParams;
using contract::Format;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

void StoreRow(const float* values, float factor, int count, Format format, u8* out) {
  switch (format) {
    case Format::kBF16:
      for (int i = 0; i < count; ++i) {
        const contract::u16 bits = contract::EncodeBF16(values[i] * factor);
        std::memcpy(out + 2 * i, &bits, 2);
      }
      break;
    case Format::kF16:
      for (int i = 0; i < count; ++i) {
        const contract::u16 bits = contract::EncodeF16(values[i] * factor);
        std::memcpy(out + 2 * i, &bits, 2);
      }
      break;
    default:
      for (int i = 0; i < count; ++i) {
        const float value = values[i] * factor;
        std::memcpy(out + 4 * i, &value, 4);
      }
      break;
  }
}

void StoreLse(const Launch& launch, i64 q_row, i64 head, double value) {
  const AttentionParams& params = *launch.params;
  if (params.lse == nullptr) return;
  params.lse[q_row * params.lse_row_stride + head * params.lse_head_stride] =
      static_cast<float>(value);
}

constexpr double kLn2 = 0.69314718055994530942;

}  // namespace

RowState EmptyState(const float* output) { return {output, {kMinusInfinity, 0.0f, 0.0f}}; }

void AddState(const float* state, const float* output, float* total, float* total_output, int dim) {
  const float reference =
      contract::Max(total[contract::kStateReference], state[contract::kStateReference]);
  const float keep = contract::MoveFactor(total[contract::kStateReference], reference);
  const float add = contract::MoveFactor(state[contract::kStateReference], reference);
  for (int d = 0; d < dim; ++d) total_output[d] = total_output[d] * keep + output[d] * add;
  total[contract::kStateReference] = reference;
  for (const int field : {contract::kStateWeight, contract::kStateSum}) {
    total[field] = total[field] * keep + state[field] * add;
  }
}

void WriteResult(const Launch& launch, i64 q_row, i64 head, const RowState& state, float* scratch) {
  const AttentionParams& params = *launch.params;
  const int dim = launch.config.head_dim_vo;
  u8* out = params.out + q_row * params.out_row_stride + head * params.out_head_stride;
  const Format format = static_cast<Format>(params.out_format);
  const double sink = params.sink == nullptr ? static_cast<double>(kMinusInfinity)
                                             : double{params.sink[head * params.sink_stride]};
  const double to_base = params.lse_base_two ? 1.0 : kLn2;
  if (state.sum() == 0.0f) {
    std::memset(scratch, 0, static_cast<std::size_t>(dim) * sizeof(float));
    StoreRow(scratch, 1.0f, dim, format, out);
    StoreLse(launch, q_row, head, params.lse_base_two ? sink / kLn2 : sink);
    return;
  }
  float reference = state.reference();
  double move = 1.0;
  double sink_term = 0.0;
  if (params.sink != nullptr) {
    const double logit = sink / kLn2;
    reference = contract::Max(reference, static_cast<float>(std::ceil(logit)));
    move = double{contract::MoveFactor(state.reference(), reference)};
    sink_term = std::exp2(logit - double{reference});
  }
  const double sum = double{state.sum()} * move;
  // Rounded weights among the keys, exact ones against the sink, which is not rounded.
  const double factor = sum / (sum + sink_term) / double{state.weight()};
  StoreRow(state.output, static_cast<float>(factor), dim, format, out);
  StoreLse(launch, q_row, head, (double{reference} + std::log2(sum + sink_term)) * to_base);
}

void WritePartial(const Launch& launch, const contract::RowBlock& block, i64 split, i64 vector,
                  const RowState& state) {
  const contract::PartialLayout layout = launch.plan->partials();
  float* outputs = reinterpret_cast<float*>(launch.workspace);
  float* states = reinterpret_cast<float*>(launch.workspace + layout.StateByteOffset());
  std::memcpy(outputs + layout.OutIndex(block, split, vector), state.output,
              static_cast<std::size_t>(launch.config.head_dim_vo) * sizeof(float));
  float* cell = states + layout.StateIndex(block, split, vector);
  std::memcpy(cell, state.values, sizeof(state.values));
}

namespace {

// Partials are summed in groups of so many, then the groups, so that thousands of splits do not
// drift (kFoldKeys in item_scratch.h).
constexpr int kMergeGroup = 64;

// The merged state of one vector over all splits of its block. `output` and `group`:
// [head_dim_vo] each.
RowState MergeSplits(const Launch& launch, const contract::RowBlock& block, i64 vector,
                     float* output, float* group) {
  const contract::PartialLayout layout = launch.plan->partials();
  const float* outputs = reinterpret_cast<const float*>(launch.workspace);
  const float* states = reinterpret_cast<const float*>(launch.workspace + layout.StateByteOffset());
  const int dim = launch.config.head_dim_vo;
  RowState merged = EmptyState(output);
  float& reference = merged.values[contract::kStateReference];
  for (int split = 0; split < block.splits; ++split) {
    const i64 state = layout.StateIndex(block, split, vector);
    reference = contract::Max(reference, states[state + contract::kStateReference]);
  }
  double weight = 0;
  double sum = 0;
  std::memset(output, 0, static_cast<std::size_t>(dim) * sizeof(float));
  for (int begin = 0; begin < block.splits; begin += kMergeGroup) {
    const int end = contract::Min(begin + kMergeGroup, block.splits);
    std::memset(group, 0, static_cast<std::size_t>(dim) * sizeof(float));
    for (int split = begin; split < end; ++split) {
      const float* state = states + layout.StateIndex(block, split, vector);
      if (state[contract::kStateSum] == 0.0f) continue;  // Saw nothing.
      const float factor = contract::MoveFactor(state[contract::kStateReference], reference);
      const float* source = outputs + layout.OutIndex(block, split, vector);
      weight += double{state[contract::kStateWeight]} * double{factor};
      sum += double{state[contract::kStateSum]} * double{factor};
      for (int i = 0; i < dim; ++i) group[i] += source[i] * factor;
    }
    for (int i = 0; i < dim; ++i) output[i] += group[i];
  }
  merged.values[contract::kStateWeight] = static_cast<float>(weight);
  merged.values[contract::kStateSum] = static_cast<float>(sum);
  return merged;
}

}  // namespace

void RunMerge(const Launch& launch, const contract::MergeItem& merge, float* scratch) {
  const contract::RowBlock& block = launch.plan->blocks[static_cast<std::size_t>(merge.block)];
  const contract::RequestInfo& request =
      launch.plan->requests[static_cast<std::size_t>(block.request)];
  float* second = scratch + launch.config.head_dim_vo;
  for (i64 vector = merge.begin; vector < merge.begin + merge.count; ++vector) {
    const i64 q_row = request.q_row_begin + block.row_begin + vector / block.q_head_count;
    const i64 head = block.q_head_begin + vector % block.q_head_count;
    const RowState state = block.splits == 0 ? EmptyState(scratch)
                                             : MergeSplits(launch, block, vector, scratch, second);
    WriteResult(launch, q_row, head, state, second);
  }
}

}  // namespace kvilt::cpu
