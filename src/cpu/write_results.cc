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

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

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

// contract::MoveFactor in double: 2^(from - to), exact since references are integers; 0 for a state
// that saw nothing.
double Move(double from, double to) { return from == kMinusInfinity ? 0.0 : std::exp2(from - to); }

}  // namespace

RowState EmptyState(const float* output) {
  return {output, {static_cast<float>(kMinusInfinity), 0.0f, 0.0f}};
}

void AddState(const float* state, const float* output, double* total, double* total_output,
              int dim) {
  const double reference =
      contract::Max(total[contract::kStateReference], double{state[contract::kStateReference]});
  const double keep = Move(total[contract::kStateReference], reference);
  const double add = Move(double{state[contract::kStateReference]}, reference);
  for (int d = 0; d < dim; ++d) {
    total_output[d] = total_output[d] * keep + double{output[d]} * add;
  }
  total[contract::kStateReference] = reference;
  for (const int field : {contract::kStateWeight, contract::kStateSum}) {
    total[field] = total[field] * keep + double{state[field]} * add;
  }
}

void WriteResult(const Launch& launch, const ItemRow& row, i64 head, const RowState& state,
                 float* scratch) {
  const AttentionParams& params = *launch.params;
  const int dim = launch.config.head_dim_vo;
  u8* out = params.out + row.q_row * params.out_row_stride + head * params.out_head_stride;
  const Format format = static_cast<Format>(params.out_format);
  const double sink =
      params.sink == nullptr ? kMinusInfinity : double{params.sink[head * params.sink_stride]};
  const double to_base = params.lse_base_two ? 1.0 : kLn2;
  if (state.sum() == 0.0f || sink == -kMinusInfinity) {
    std::memset(scratch, 0, static_cast<std::size_t>(dim) * sizeof(float));
    StoreRow(scratch, 1.0f, dim, format, out);
    StoreLse(launch, row.q_row, head, sink / kLn2 * to_base);
    return;
  }
  // The scores of the state lack what ALiBi adds to all of them, and the sink does not.
  const double shift = contract::BiasShift(params, row, head) / kLn2;
  const double logit = sink / kLn2 - shift;
  // In double throughout: a sink may be as far from the scores as floats go.
  const double reference = contract::Max(double{state.reference()}, std::ceil(logit));
  const double sink_term = std::exp2(logit - reference);
  const double sum = double{state.sum()} * Move(double{state.reference()}, reference);
  // Rounded weights among the keys, exact ones against the sink, which is not rounded.
  const double factor = sum / (sum + sink_term) / double{state.weight()};
  StoreRow(state.output, static_cast<float>(factor), dim, format, out);
  StoreLse(launch, row.q_row, head, (shift + reference + std::log2(sum + sink_term)) * to_base);
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

// Partials are summed in groups of so many in f32, and the groups in double, so that no number of
// splits drifts (kFoldKeys in item_scratch.h).
constexpr int kMergeGroup = 64;

// What RunMerge carves out of its scratch, [head_dim_vo] each.
struct MergeScratch {
  double* total;
  float* group;
  float* output;
};

// The merged state of one vector over all splits of its block, its output in `scratch`.
RowState MergeSplits(const Launch& launch, const contract::RowBlock& block, i64 vector,
                     const MergeScratch& scratch) {
  const contract::PartialLayout layout = launch.plan->partials();
  const float* outputs = reinterpret_cast<const float*>(launch.workspace);
  const float* states = reinterpret_cast<const float*>(launch.workspace + layout.StateByteOffset());
  const int dim = launch.config.head_dim_vo;
  RowState merged = EmptyState(scratch.output);
  float& reference = merged.values[contract::kStateReference];
  for (int split = 0; split < block.splits; ++split) {
    const i64 state = layout.StateIndex(block, split, vector);
    reference = contract::Max(reference, states[state + contract::kStateReference]);
  }
  double weight = 0;
  double sum = 0;
  for (int i = 0; i < dim; ++i) scratch.total[i] = 0;
  for (int begin = 0; begin < block.splits; begin += kMergeGroup) {
    const int end = contract::Min(begin + kMergeGroup, block.splits);
    std::memset(scratch.group, 0, static_cast<std::size_t>(dim) * sizeof(float));
    for (int split = begin; split < end; ++split) {
      const float* state = states + layout.StateIndex(block, split, vector);
      if (state[contract::kStateSum] == 0.0f) continue;  // Saw nothing.
      const float factor = contract::MoveFactor(state[contract::kStateReference], reference);
      const float* source = outputs + layout.OutIndex(block, split, vector);
      weight += double{state[contract::kStateWeight]} * double{factor};
      sum += double{state[contract::kStateSum]} * double{factor};
      for (int i = 0; i < dim; ++i) scratch.group[i] += source[i] * factor;
    }
    for (int i = 0; i < dim; ++i) scratch.total[i] += double{scratch.group[i]};
  }
  for (int i = 0; i < dim; ++i) scratch.output[i] = static_cast<float>(scratch.total[i]);
  merged.values[contract::kStateWeight] = static_cast<float>(weight);
  merged.values[contract::kStateSum] = static_cast<float>(sum);
  return merged;
}

}  // namespace

i64 MergeScratchBytes(int head_dim_vo) {
  return head_dim_vo * i64{sizeof(double) + 2 * sizeof(float)};
}

void RunMerge(const Launch& launch, const contract::MergeItem& merge, std::byte* scratch) {
  const contract::RowBlock& block = launch.plan->blocks[static_cast<std::size_t>(merge.block)];
  const contract::RequestInfo& request =
      launch.plan->requests[static_cast<std::size_t>(block.request)];
  MergeScratch s;
  s.total = reinterpret_cast<double*>(scratch);
  s.group = reinterpret_cast<float*>(s.total + launch.config.head_dim_vo);
  s.output = s.group + launch.config.head_dim_vo;
  for (i64 vector = merge.begin; vector < merge.begin + merge.count; ++vector) {
    const ItemRow row =
        MakeRow(*launch.params, request, block.row_begin + vector / block.q_head_count);
    const i64 head = block.q_head_begin + vector % block.q_head_count;
    const RowState state =
        block.splits == 0 ? EmptyState(s.output) : MergeSplits(launch, block, vector, s);
    WriteResult(launch, row, head, state, s.group);
  }
}

}  // namespace kvilt::cpu
