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
    slopes_.push_back(o_.alibi_slope * static_cast<float>(h + 1));
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

}  // namespace kvilt::cpu
