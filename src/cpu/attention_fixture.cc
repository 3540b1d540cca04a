#include "src/cpu/attention_fixture.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "src/contract/formats.h"
#include "src/contract/scale_layout.h"
#include "src/core/check.h"
#include "src/cpu/prefetch.h"

namespace kvilt::cpu {
namespace {

using contract::Format;
using contract::Mask;
using contract::SideParams;
using contract::TableKind;

std::size_t Index(i64 i) { return static_cast<std::size_t>(i); }

float Encode(Format format, float x, u8* out) {
  switch (format) {
    case Format::kBF16: {
      const contract::u16 bits = contract::EncodeBF16(x);
      std::memcpy(out, &bits, 2);
      return contract::DecodeBF16(bits);
    }
    case Format::kF16: {
      const contract::u16 bits = contract::EncodeF16(x);
      std::memcpy(out, &bits, 2);
      return contract::DecodeF16(bits);
    }
    case Format::kE4M3:
      *out = contract::EncodeE4M3(x);
      return contract::DecodeE4M3(*out);
    case Format::kE5M2:
      *out = contract::EncodeE5M2(x);
      return contract::DecodeE5M2(*out);
    default:
      std::memcpy(out, &x, 4);
      return x;
  }
}

i64 ScaleBytes(Format format, i64 dim) { return format == Format::kNVFP4 ? dim / 16 : 0; }

}  // namespace

SegmentOptions OneSegment(Format k, Format v, std::vector<i64> lengths, i64 page_size) {
  SegmentOptions segment;
  segment.k.format = k;
  segment.v.format = v;
  segment.lengths = std::move(lengths);
  segment.page_size = page_size;
  return segment;
}

AttentionFixture::AttentionFixture(AttentionOptions options) : o_(std::move(options)) {
  BuildRequests();
  BuildQueries();
  BuildOptions();
  const std::size_t count = o_.segments.size();
  k_memory_.resize(count);
  v_memory_.resize(count);
  tables_.resize(count);
  indptrs_.resize(count);
  segments_.resize(count);
  for (std::size_t s = 0; s < count; ++s) BuildSegment(s);
  params_.segments = segments_.data();
  params_.segment_count = static_cast<int>(count);
  BuildReference();
  BuildPlan();
}

void AttentionFixture::BuildRequests() {
  for (std::size_t r = 0; r < o_.q_len.size(); ++r) {
    q_begin_.push_back(q_rows_);
    q_rows_ += o_.q_len[r];
    std::vector<i64> begin = {0};
    for (const SegmentOptions& segment : o_.segments) {
      begin.push_back(begin.back() + segment.lengths[r]);
    }
    kv_len_.push_back(begin.back());
    segment_begin_.push_back(begin);
    k_values_.emplace_back(Index(begin.back() * o_.kv_heads * o_.dim_qk));
    v_values_.emplace_back(Index(begin.back() * o_.kv_heads * o_.dim_vo));
  }
}

std::vector<float> AttentionFixture::RandomRow(int kind, i64 request, i64 key, int head,
                                               int dim) const {
  const i64 id = o_.request_ids.empty() ? request : o_.request_ids[Index(request)];
  std::seed_seq seed{static_cast<unsigned>(kind), o_.seed, static_cast<unsigned>(id),
                     static_cast<unsigned>(key), static_cast<unsigned>(head)};
  std::minstd_rand generator(seed);
  std::normal_distribution<float> normal;
  // Log-normal token magnitudes that also change with the position.
  const float size =
      std::exp(0.5f * normal(generator)) * (0.5f + 0.25f * static_cast<float>(key % 5));
  std::vector<float> row(Index(dim));
  for (float& x : row) x = normal(generator) * (kind == 0 ? 1.0f : size);
  return row;
}

void AttentionFixture::WriteRow(const SideOptions& side, SideParams& params, u8* data, u8* scales,
                                i64 token, int head, const std::vector<float>& values,
                                double* stored) {
  const float global = side.global[side.global.size() > 1 ? Index(head) : 0];
  const i64 dim = params.head_dim;
  if (side.format != Format::kNVFP4) {
    const i64 bytes = RowBytes(side.format, 8) / 8;
    for (i64 d = 0; d < dim; ++d) {
      stored[d] =
          double{Encode(side.format, values[Index(d)] / global, data + d * bytes)} * double{global};
    }
    return;
  }
  for (i64 b = 0; b < dim / 16; ++b) {
    const contract::Nvfp4Block block =
        contract::EncodeNvfp4Block(values.data() + b * 16, global, false);
    std::memcpy(data + b * 8, block.codes, 8);
    scales[contract::ScaleRow(side.interleaved4, token, b, dim / 16) * params.scale_token_stride +
           contract::ScaleColumn(side.interleaved4, token, b, dim / 16)] = block.scale;
    for (int i = 0; i < 16; ++i) {
      const u8 byte = block.codes[i / 2];
      stored[b * 16 + i] = double{contract::DecodeE2M1(i % 2 ? byte >> 4 : byte & 15u)} *
                           double{contract::DecodeE4M3(block.scale)} * double{global};
    }
  }
}

void AttentionFixture::BuildSide(std::size_t s, bool is_k, i64 pages) {
  const SegmentOptions& segment = o_.segments[s];
  const SideOptions& side = is_k ? segment.k : segment.v;
  SideParams& params = is_k ? segments_[s].k : segments_[s].v;
  SideMemory& memory = is_k ? k_memory_[s] : v_memory_[s];
  const i64 dim = is_k ? o_.dim_qk : o_.dim_vo;
  params.format = static_cast<int>(side.format);
  params.head_dim = static_cast<int>(dim);
  params.interleaved4 = side.interleaved4;
  params.global = side.global.data();
  params.global_per_head = side.global.size() > 1;
  const i64 tokens = segments_[s].page_size;
  const i64 row = RowBytes(side.format, dim) + side.row_pad_bytes;
  const i64 scale_row = ScaleBytes(side.format, dim) + side.row_pad_bytes;
  params.token_stride = side.nhd ? row * o_.kv_heads : row;
  params.head_stride = side.nhd ? row : row * tokens;
  params.page_stride = row * o_.kv_heads * tokens + side.page_pad_bytes;
  params.scale_token_stride = side.nhd ? scale_row * o_.kv_heads : scale_row;
  params.scale_head_stride = side.nhd ? scale_row : scale_row * tokens;
  params.scale_page_stride = scale_row * o_.kv_heads * tokens + side.page_pad_bytes;
  memory.data.assign(Index(pages * params.page_stride), 0xFF);
  memory.scales.assign(Index(pages * params.scale_page_stride), 0xFF);
  params.data = memory.data.data();
  params.scales = side.format == Format::kNVFP4 ? memory.scales.data() : nullptr;

  for (i64 r = 0; r < static_cast<i64>(o_.q_len.size()); ++r) {
    const i64 source = segment.shared ? 0 : r;
    for (i64 t = 0; t < segment.lengths[Index(r)]; ++t) {
      const i64 key = segment_begin_[Index(r)][s] + t;
      bool seen = !o_.poison_unseen_keys || segment.shared;
      for (i64 i = 0; i < o_.q_len[Index(r)] && !seen; ++i) seen = Visible(r, i, key);
      if (!seen) continue;
      i64 page = 0;
      i64 offset = t;
      if (segment.table == TableKind::kRagged) {
        offset += indptrs_[s][Index(source)];
      } else {
        page = tables_[s][Index(indptrs_[s][Index(source)] + t / tokens)];
        offset = t % tokens;
      }
      for (int h = 0; h < o_.kv_heads; ++h) {
        std::vector<float> values = RandomRow(is_k ? 1 : 2, source, key, h, static_cast<int>(dim));
        const auto& given = is_k ? o_.k_value : o_.v_value;
        for (int d = 0; given && d < dim; ++d) values[Index(d)] = given(key, h, d);
        u8* data = memory.data.data() + page * params.page_stride + offset * params.token_stride +
                   h * params.head_stride;
        u8* scales = memory.scales.data() + page * params.scale_page_stride +
                     h * params.scale_head_stride +
                     (side.interleaved4 ? 0 : offset * params.scale_token_stride);
        double* stored =
            (is_k ? k_values_ : v_values_)[Index(r)].data() + (key * o_.kv_heads + h) * dim;
        // Linear rows are addressed directly; interleaved4 wants the view and the token.
        WriteRow(side, params, data, scales, side.interleaved4 ? offset : 0, h, values, stored);
      }
    }
  }
}

void AttentionFixture::BuildSegment(std::size_t s) {
  const SegmentOptions& segment = o_.segments[s];
  contract::SegmentParams& params = segments_[s];
  params.table = static_cast<int>(segment.table);
  params.shared = segment.shared;
  params.indptr_is_i64 = 1;
  const std::size_t table_rows = segment.shared ? 1 : o_.q_len.size();
  std::vector<i64>& indptr = indptrs_[s];
  indptr = {0};
  i64 pages = 1;
  if (segment.table == TableKind::kRagged) {
    for (std::size_t r = 0; r < table_rows; ++r)
      indptr.push_back(indptr.back() + segment.lengths[r]);
    params.page_size = indptr.back() + 3;
    params.pages = 1;
  } else {
    i64 longest = 0;
    for (std::size_t r = 0; r < table_rows; ++r) {
      longest = std::max(longest, contract::CeilDiv(segment.lengths[r], segment.page_size));
    }
    for (std::size_t r = 0; r < table_rows; ++r) {
      const i64 used = contract::CeilDiv(segment.lengths[r], segment.page_size);
      indptr.push_back(indptr.back() + (segment.table == TableKind::kCsr ? used : longest + 1));
    }
    params.page_size = segment.page_size;
    params.pages = pages = indptr.back() + 2;
    params.row_stride = longest + 1;
    for (i64 p = 0; p < indptr.back(); ++p) {
      tables_[s].push_back(
          static_cast<int>(o_.reverse_pages ? pages - 1 - p : (p * 7 + 1) % pages));
    }
    if (pages % 7 == 0 && !o_.reverse_pages) {
      for (i64 p = 0; p < indptr.back(); ++p) tables_[s][Index(p)] = static_cast<int>(p);
    }
  }
  params.indices = tables_[s].data();
  params.indptr = indptr.data();
  BuildSide(s, true, pages);
  BuildSide(s, false, pages);
}

void AttentionFixture::BuildQueries() {
  SideOptions side;
  side.format = o_.q_format;
  SideParams row_params;
  row_params.head_dim = o_.dim_qk;
  const i64 bytes = RowBytes(o_.q_format, o_.dim_qk) + 8;
  const i64 scale_bytes = ScaleBytes(o_.q_format, o_.dim_qk) + 3;
  q_data_.assign(Index(q_rows_ * o_.q_heads * bytes), 0xFF);
  q_scales_.assign(Index(q_rows_ * o_.q_heads * scale_bytes), 0xFF);
  q_values_.resize(Index(q_rows_ * o_.q_heads * o_.dim_qk));
  for (i64 r = 0; r < static_cast<i64>(o_.q_len.size()); ++r) {
    for (i64 i = 0; i < o_.q_len[Index(r)]; ++i) {
      for (int h = 0; h < o_.q_heads; ++h) {
        const i64 row = q_begin_[Index(r)] + i;
        std::vector<float> values = RandomRow(0, r, i, h, o_.dim_qk);
        for (float& x : values) x *= o_.sigma;
        for (int d = 0; o_.q_value && d < o_.dim_qk; ++d) values[Index(d)] = o_.q_value(row, h, d);
        const i64 at = row * o_.q_heads + h;
        WriteRow(side, row_params, q_data_.data() + at * bytes, q_scales_.data() + at * scale_bytes,
                 0, 0, values, q_values_.data() + at * o_.dim_qk);
      }
    }
  }
  params_.q = q_data_.data();
  params_.q_format = static_cast<int>(o_.q_format);
  params_.q_scales = o_.q_format == Format::kNVFP4 ? q_scales_.data() : nullptr;
  params_.q_row_stride = bytes * o_.q_heads;
  params_.q_head_stride = bytes;
  params_.q_scale_row_stride = scale_bytes * o_.q_heads;
  params_.q_scale_head_stride = scale_bytes;
}

void AttentionFixture::BuildOptions() {
  params_.logit_scale = 1.0f / std::sqrt(static_cast<float>(o_.dim_qk));
  params_.out_format = static_cast<int>(o_.out_format);
  const i64 element = o_.out_format == Format::kF32 ? 4 : 2;
  params_.out_head_stride = o_.dim_vo * element;
  params_.out_row_stride = params_.out_head_stride * o_.q_heads;
  params_.lse_row_stride = o_.q_heads;
  params_.lse_head_stride = 1;
  params_.lse_base_two = o_.lse_base_two;
  params_.soft_cap = o_.soft_cap;
  for (int h = 0; o_.alibi && h < o_.q_heads; ++h) {
    slopes_.push_back(-0.02f * static_cast<float>(h + 1));
  }
  params_.alibi_slopes = o_.alibi ? slopes_.data() : nullptr;
  params_.alibi_row_index = o_.alibi_row_index;
  params_.bias_before_cap = o_.bias_before_cap;
  params_.visibility = {static_cast<int>(o_.mask), o_.window_left, o_.window_right};
  params_.q_positions = o_.q_positions.empty() ? nullptr : o_.q_positions.data();
  params_.q_position_is_i64 = 1;
  params_.sink = o_.sink.empty() ? nullptr : o_.sink.data();
  for (int i = 0; i < o_.rotary_dim / 2; ++i) {
    frequencies_.push_back(std::pow(10000.0, -2.0 * i / o_.rotary_dim));
  }
  params_.rope.enabled = o_.rotary_dim > 0;
  params_.rope.interleaved = o_.rope_interleaved;
  params_.rope.rotary_dim = o_.rotary_dim;
  params_.rope.frequencies = frequencies_.data();
  params_.rope.key_positions = o_.key_positions.empty() ? nullptr : o_.key_positions.data();
  params_.rope.key_position_is_i64 = 1;
  i64 mask_bytes = 0;
  i64 key_begin = 0;
  for (std::size_t r = 0; r < o_.q_len.size(); ++r) {
    contract::RequestInfo info;
    info.q_row_begin = q_begin_[r];
    info.q_len = o_.q_len[r];
    info.kv_len = kv_len_[r];
    info.mask_byte_begin = mask_bytes;
    info.key_position_begin = key_begin;
    lists_.requests.push_back(info);
    mask_bytes += contract::MaskBytes(static_cast<int>(o_.mask), info.q_len, info.kv_len);
    key_begin += info.kv_len;
  }
  mask_bits_.assign(Index(mask_bytes), 0);
  if (mask_bytes == 0) return;
  for (std::size_t r = 0; r < o_.q_len.size(); ++r) {
    const i64 columns = o_.mask == Mask::kTree ? o_.q_len[r] : kv_len_[r];
    for (i64 i = 0; i < o_.q_len[r]; ++i) {
      for (i64 j = 0; j < columns; ++j) {
        const i64 bit = i * columns + j;
        if (!o_.mask_bit(static_cast<i64>(r), i, j)) continue;
        mask_bits_[Index(lists_.requests[r].mask_byte_begin + bit / 8)] |=
            static_cast<u8>(1 << bit % 8);
      }
    }
  }
  params_.mask_bits = mask_bits_.data();
}

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
    x *= double{params_.logit_scale};
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
        block.partial_row = header.partial_rows;
        header.partial_rows += block.splits * block.row_count;
      }
      if (block.splits != 1) lists_.merges.push_back({index, 0, 0, block.row_count});
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
