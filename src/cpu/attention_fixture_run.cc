// The judge and the plan of AttentionFixture.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "src/contract/formats.h"
#include "src/cpu/attention_fixture.h"

namespace kvilt::cpu {
namespace {

using contract::Format;
using contract::Mask;

std::size_t Index(i64 i) { return static_cast<std::size_t>(i); }

}  // namespace

// ---------------------------------------------------------------- reference

bool AttentionFixture::Visible(i64 request, i64 i, i64 j) const {
  const i64 delta = kv_len_[Index(request)] - o_.q_len[Index(request)];
  const i64 p =
      o_.q_positions.empty() ? i + delta : o_.q_positions[Index(q_begin_[Index(request)] + i)];
  if (o_.window_left >= 0 && j < p - o_.window_left) return false;
  if (o_.window_right >= 0 && j > p + o_.window_right) return false;
  switch (o_.mask) {
    case Mask::kCausal:
      return j <= i + delta;
    case Mask::kCustom:
      return o_.mask_bit(request, i, j);
    case Mask::kTree:
      return j < delta || o_.mask_bit(request, i, j - delta);
    default:
      return true;
  }
}

std::vector<double> AttentionFixture::Rotated(const double* row, i64 position) const {
  std::vector<double> x(row, row + o_.dim_qk);
  const int half = o_.rotary_dim / 2;
  for (int i = 0; i < half; ++i) {
    const std::size_t a = Index(o_.rope_interleaved ? 2 * i : i);
    const std::size_t b = Index(o_.rope_interleaved ? 2 * i + 1 : i + half);
    const double angle = static_cast<double>(position) * frequencies_[Index(i)];
    x[a] = row[a] * std::cos(angle) - row[b] * std::sin(angle);
    x[b] = row[a] * std::sin(angle) + row[b] * std::cos(angle);
  }
  return x;
}

void AttentionFixture::ReferenceRow(i64 request, i64 i, int head) {
  const i64 kv = kv_len_[Index(request)];
  const i64 delta = kv - o_.q_len[Index(request)];
  const i64 row = q_begin_[Index(request)] + i;
  const int kv_head = head / (o_.q_heads / o_.kv_heads);
  const i64 position = o_.q_positions.empty() ? i + delta : o_.q_positions[Index(row)];
  const double* q = q_values_.data() + (row * o_.q_heads + head) * o_.dim_qk;
  const std::vector<double> rotated_q = Rotated(q, position);
  std::vector<double> logits(Index(kv), -std::numeric_limits<double>::infinity());
  double top = o_.sink.empty() ? -std::numeric_limits<double>::infinity() : o_.sink[Index(head)];
  for (i64 j = 0; j < kv; ++j) {
    if (!Visible(request, i, j)) continue;
    const double* k = k_values_[Index(request)].data() + (j * o_.kv_heads + kv_head) * o_.dim_qk;
    const i64 key_position =
        o_.key_positions.empty()
            ? j
            : o_.key_positions[Index(lists_.requests[Index(request)].key_position_begin + j)];
    const std::vector<double> rotated_k = Rotated(k, key_position);
    double x = 0.0;
    for (int d = 0; d < o_.dim_qk; ++d) x += rotated_q[Index(d)] * rotated_k[Index(d)];
    x *= params_.logit_scale;
    const i64 distance = j - (o_.alibi_row_index ? i : i + delta);
    const double bias =
        o_.alibi ? double{slopes_[Index(head)]} * static_cast<double>(distance) : 0.0;
    if (o_.bias_before_cap) x += bias;
    if (o_.soft_cap > 0) x = double{o_.soft_cap} * std::tanh(x / double{o_.soft_cap});
    if (!o_.bias_before_cap) x += bias;
    logits[Index(j)] = x;
    top = std::max(top, x);
  }
  double* out = reference_.data() + (row * o_.q_heads + head) * o_.dim_vo;
  double* magnitude = magnitude_.data() + (row * o_.q_heads + head) * o_.dim_vo;
  double sum =
      o_.sink.empty() || std::isinf(top) ? 0.0 : std::exp(double{o_.sink[Index(head)]} - top);
  for (i64 j = 0; j < kv; ++j) {
    if (std::isinf(logits[Index(j)])) continue;
    const double p = std::exp(logits[Index(j)] - top);
    sum += p;
    const double* v = v_values_[Index(request)].data() + (j * o_.kv_heads + kv_head) * o_.dim_vo;
    for (int d = 0; d < o_.dim_vo; ++d) {
      out[d] += p * v[d];
      magnitude[d] += p * std::fabs(v[d]);
    }
  }
  for (int d = 0; d < o_.dim_vo && sum > 0.0; ++d) {
    out[d] /= sum;
    magnitude[d] /= sum;
  }
  const double lse = sum > 0.0 ? top + std::log(sum) : top;
  reference_lse_[Index(row * o_.q_heads + head)] = o_.lse_base_two ? lse / std::log(2.0) : lse;
}

void AttentionFixture::BuildReference() {
  reference_.assign(Index(q_rows_ * o_.q_heads * o_.dim_vo), 0.0);
  magnitude_.assign(reference_.size(), 0.0);
  reference_lse_.assign(Index(q_rows_ * o_.q_heads), 0.0);
  for (std::size_t r = 0; r < o_.q_len.size(); ++r) {
    for (i64 i = 0; i < o_.q_len[r]; ++i) {
      for (int h = 0; h < o_.q_heads; ++h) ReferenceRow(static_cast<i64>(r), i, h);
    }
  }
}

// ---------------------------------------------------------------- plan

void AttentionFixture::BuildPlan() {
  contract::PlanHeader& header = lists_.header;
  header.path = static_cast<int>(o_.path);
  header.accuracy = o_.accuracy;
  header.batch = static_cast<int>(o_.q_len.size());
  header.segments = static_cast<int>(o_.segments.size());
  header.q_heads = o_.q_heads;
  header.kv_heads = o_.kv_heads;
  header.head_dim_qk = o_.dim_qk;
  header.head_dim_vo = o_.dim_vo;
  const int heads = o_.heads_per_item > 0 ? o_.heads_per_item : o_.kv_heads;
  const i64 shared = o_.cascade ? o_.segments[0].lengths[0] : 0;
  struct Cut {
    i64 begin, end;
    contract::WorkSpan span;
  };
  std::vector<Cut> cuts;
  std::vector<contract::WorkSpan> cascade;
  for (std::size_t r = 0; r < o_.q_len.size(); ++r) {
    for (const i64 begin : segment_begin_[r]) lists_.segment_begins.push_back(begin);
    for (i64 row = 0; row < o_.q_len[r]; row += o_.block_rows) {
      contract::RowBlock block;
      block.request = static_cast<int>(r);
      block.q_head_count = o_.q_heads;
      block.row_begin = row;
      block.row_count = contract::Min(o_.block_rows, o_.q_len[r] - row);
      const int index = static_cast<int>(lists_.blocks.size());
      if (shared > 0) cascade.push_back({index, block.splits++});
      for (i64 key = shared; key < kv_len_[r];) {
        i64 stop = kv_len_[r];
        if (o_.split_rows > 0) {
          stop = contract::Min(stop, contract::RoundDown(key, o_.split_rows) + o_.split_rows);
          for (const i64 border : segment_begin_[r]) {
            if (border > key) stop = contract::Min(stop, border);
          }
        }
        cuts.push_back({key, stop, {index, block.splits++}});
        key = stop;
      }
      if (block.splits > 1) {
        block.partial_begin = header.partials;
        header.partials += block.splits * block.vectors();
      }
      if (block.splits != 1) lists_.merges.push_back({index, 0, 0, block.vectors()});
      lists_.blocks.push_back(block);
    }
  }
  for (int head = 0; head < o_.kv_heads; head += heads) {
    const int count = std::min(heads, o_.kv_heads - head);
    for (const Cut& cut : cuts) {
      const int span = static_cast<int>(lists_.spans.size());
      lists_.spans.push_back(cut.span);
      lists_.items.push_back({head, count, span, 1, cut.begin, cut.end, cut.end - cut.begin});
    }
    if (cascade.empty()) continue;
    const int span = static_cast<int>(lists_.spans.size());
    lists_.spans.insert(lists_.spans.end(), cascade.begin(), cascade.end());
    lists_.items.push_back(
        {head, count, span, static_cast<int>(cascade.size()), 0, shared, shared});
  }
  plan_data_ = plan::EncodePlanData(lists_);
}

void AttentionFixture::Prepare() {
  out_.assign(Index(q_rows_ * params_.out_row_stride), std::byte{0xFF});
  lse_.assign(Index(q_rows_ * o_.q_heads), std::numeric_limits<float>::quiet_NaN());
  params_.out = reinterpret_cast<u8*>(out_.data());
  params_.lse = lse_.data();
  const i64 bytes = plan::ViewPlanData(plan_data_).partials().Bytes();
  std::byte* memory = workspace_.Reserve(bytes);
  if (bytes > 0) std::memset(memory, 0xFF, Index(bytes));
}

Status AttentionFixture::RunPrepared(SimdTarget target, WorkerPool& pool) {
  return RunAttention(plan::ViewPlanData(plan_data_), params_, workspace_.data(), target, pool);
}

Status AttentionFixture::Run(SimdTarget target, int threads) {
  Prepare();
  WorkerPool pool(threads);
  return RunPrepared(target, pool);
}

float AttentionFixture::out(i64 q_row, int head, int dim) const {
  const i64 element = o_.out_format == Format::kF32 ? 4 : 2;
  const std::byte* p = out_.data() + ((q_row * o_.q_heads + head) * o_.dim_vo + dim) * element;
  float value;
  contract::u16 bits;
  if (o_.out_format == Format::kF32) {
    std::memcpy(&value, p, 4);
    return value;
  }
  std::memcpy(&bits, p, 2);
  return o_.out_format == Format::kBF16 ? contract::DecodeBF16(bits) : contract::DecodeF16(bits);
}

float AttentionFixture::lse(i64 q_row, int head) const {
  return lse_[Index(q_row * o_.q_heads + head)];
}

double AttentionFixture::Error() const {
  double error = 0.0;
  double size = 0.0;
  for (i64 row = 0; row < q_rows_; ++row) {
    for (int h = 0; h < o_.q_heads; ++h) {
      for (int d = 0; d < o_.dim_vo; ++d) {
        const std::size_t at = Index((row * o_.q_heads + h) * o_.dim_vo + d);
        const double difference = double{out(row, h, d)} - reference_[at];
        error += difference * difference;
        size += magnitude_[at] * magnitude_[at];
      }
    }
  }
  if (std::isnan(error)) return std::numeric_limits<double>::infinity();
  return error == 0.0 ? 0.0 : std::sqrt(error / size);
}

double AttentionFixture::LseExcess() const {
  double worst = 0.0;
  for (std::size_t i = 0; i < reference_lse_.size(); ++i) {
    const double expected = reference_lse_[i];
    const double found = double{lse_[i]};
    if (found == expected) continue;  // Infinities.
    const double excess = std::fabs(found - expected) / (1e-3 + 0x1p-21 * std::fabs(expected));
    worst = excess <= std::numeric_limits<double>::max() ? std::max(worst, excess)
                                                         : std::numeric_limits<double>::infinity();
  }
  return worst;
}

}  // namespace kvilt::cpu
