#include "src/cpu/item_walk.h"

#include <algorithm>
#include <cstring>

#include "src/contract/side_address.h"
#include "src/contract/softmax.h"
#include "src/cpu/item_rows.h"
#include "src/cpu/item_scratch.h"
#include "src/cpu/write_results.h"

namespace kvilt::cpu {
namespace {

using contract::AttentionParams;
using contract::Format;
using contract::GlobalOf;
using contract::RequestInfo;
using contract::SegmentParams;
using contract::SideParams;
using contract::WorkItem;

constexpr u64 kAllLanes = ~u64{0};
constexpr double kLog2E = 1.44269504088896340736;

// The walk over one item, or over one of its spans.
class Walk {
 public:
  Walk(const Launch& launch, const WorkItem& item, i64 span_begin, i64 span_count,
       std::byte* memory)
      : launch_(launch),
        params_(*launch.params),
        body_(*launch.body),
        item_(item),
        size_(SizeOf(launch, item, span_begin, span_count)) {
    Carve(launch, size_, memory, s_);
    CollectRows(launch, span_begin, span_count, s_.rows);
    if (launch.rope != nullptr) cursor_ = RopeAngles::Cursor(*launch.rope, s_.cursor);
  }

  void Run() {
    PrepareQueries();
    ResetStates(s_.outputs, s_.states, body_.output_row_floats(launch_.config));
    if (size_.folds) ResetStates(s_.total_outputs, s_.total_states, launch_.config.head_dim_vo);
    // All rows of the walk agree on where the segments of these keys begin.
    const i64 request = size_.rows > 0 ? s_.rows[0].request : 0;
    for (i64 segment = 0; segment < params_.segment_count && size_.rows > 0; ++segment) {
      const i64 begin =
          contract::Max(item_.key_begin, launch_.plan->segment_begin(request, segment));
      const i64 end =
          contract::Min(item_.key_end, launch_.plan->segment_begin(request, segment + 1));
      if (begin < end) RunSegment(segment, request, begin, end);
    }
    WriteAll();
  }

 private:
  i64 StateIndex(i64 head, i64 row, i64 in_group) const {
    return (head * size_.rows + row) * launch_.group + in_group;
  }

  template <class T>
  void ResetStates(T* outputs, T* states, i64 numbers_per_row) {
    const i64 count = StateCount(launch_, size_);
    std::memset(outputs, 0, static_cast<std::size_t>(count * numbers_per_row) * sizeof(T));
    const RowState empty = EmptyState(nullptr);
    for (i64 i = 0; i < count; ++i) {
      std::copy_n(empty.values, contract::kStateFloats, states + i * contract::kStateFloats);
    }
  }

  void PrepareQueries() {
    const i64 stride = contract::RoundUp(launch_.config.head_dim_qk, 16);
    const i64 bytes = body_.query_row_bytes(launch_.config);
    for (i64 r = 0; r < size_.rows; ++r) {
      const ItemRow& row = s_.rows[r];
      Rotation rotation;
      if (launch_.rope != nullptr) {
        cursor_.Fill(body_, row.position, s_.cosines, s_.sines);
        rotation = MakeRotation();
      }
      for (i64 h = 0; h < size_.head_count; ++h) {
        for (i64 g = 0; g < launch_.group; ++g) {
          const i64 q_head = (item_.head_begin + h) * launch_.group + g;
          const u8* data =
              params_.q + row.q_row * params_.q_row_stride + q_head * params_.q_head_stride;
          const u8* scales = params_.q_scales == nullptr
                                 ? nullptr
                                 : params_.q_scales + row.q_row * params_.q_scale_row_stride +
                                       q_head * params_.q_scale_head_stride;
          RowSource source;
          source.rows = &data;
          source.scales = &scales;
          source.format = static_cast<Format>(params_.q_format);
          source.head_dim = launch_.config.head_dim_qk;
          body_.decode_rows(source, 1, s_.query_row, stride);
          if (launch_.rope != nullptr) body_.rotate_rows(s_.query_row, stride, 1, rotation);
          body_.prepare_query(launch_.config, s_.query_row,
                              s_.queries + StateIndex(h, r, g) * bytes);
        }
      }
    }
  }

  Rotation MakeRotation() const {
    Rotation rotation;
    rotation.cosines = s_.cosines;
    rotation.sines = s_.sines;
    rotation.stride = launch_.rope->pairs();
    rotation.rotary_dim = 2 * launch_.rope->pairs();
    rotation.interleaved = params_.rope.interleaved != 0;
    return rotation;
  }

  // ---------------------------------------------------------------- keys

  void RunSegment(i64 index, i64 request, i64 begin, i64 end) {
    const SegmentParams& segment = params_.segments[index];
    const i64 table_row = segment.shared ? 0 : request;
    const i64 segment_key = launch_.plan->segment_begin(request, index);
    i64 located = begin;  // Keys up to here are in the ring.
    i64 next_slot = 0;
    const auto locate = [&] {
      if (located >= end) return;
      const i64 stop = contract::Min(end, contract::RoundDown<i64>(located, kTileKeys) + kTileKeys);
      LocateTile(segment, table_row, segment_key, located, stop, s_.ring[next_slot]);
      s_.ring[next_slot].segment = index;
      next_slot = (next_slot + 1) % kRing;
      located = stop;
    };
    for (int i = 0; i < kTilesAhead; ++i) locate();
    i64 slot = 0;
    for (i64 key = begin; key < end;) {
      const i64 stop = contract::Min(end, contract::RoundDown<i64>(key, kTileKeys) + kTileKeys);
      const i64 before = located;
      locate();
      const TileRows* ahead = located > before ? &s_.ring[(slot + kTilesAhead) % kRing] : nullptr;
      if (ahead != nullptr && ahead->present != kAllLanes) ahead = nullptr;
      RunTile(segment, s_.ring[slot], request, key, stop, ahead);
      slot = (slot + 1) % kRing;
      key = stop;
      if (size_.folds && (key == end || key % kFoldKeys == 0)) Fold(segment);
    }
  }

  void RunTile(const SegmentParams& segment, const TileRows& tile, i64 request, i64 begin, i64 end,
               const TileRows* ahead) {
    u64 any = 0;
    u64 all = ~u64{0};
    i64 active = 0;
    for (i64 r = 0; r < size_.rows; ++r) {
      const ItemRow& row = s_.rows[r];
      const RequestInfo& info = launch_.plan->requests[static_cast<std::size_t>(row.request)];
      const u64 lanes = VisibleLanes(params_, info, row, tile.base, begin, end);
      if ((lanes & tile.absent) != 0) {
        launch_.absent->Report(tile.segment, row.request, tile.first_absent_page);
      }
      s_.visible[r] = lanes & tile.present;
      if (s_.visible[r] == 0) continue;
      s_.active[active++] = r;
      any |= s_.visible[r];
      all &= s_.visible[r];
    }
    if (any == 0) return;
    Rotation rotation;
    if (launch_.rope != nullptr) {
      FillKeyAngles(request, tile.base, any);
      rotation = MakeRotation();
    }
    for (i64 h = 0; h < size_.head_count; ++h) {
      DecodeKeyTile(segment, tile, h, any, launch_.rope == nullptr ? nullptr : &rotation, ahead);
      DecodeValueTile(segment, tile, h, any, ahead);
      const bool uneven = any != all;
      if (uneven && !body_.values_are_finite(launch_.config, s_.value_tile)) {
        // A NaN or infinity in a value that some row must not see: 0 * NaN would reach that row.
        for (i64 a = 0; a < active; ++a) {
          DecodeValueTile(segment, tile, h, s_.visible[s_.active[a]], nullptr);
          Attend(segment, tile, h, s_.active + a, 1);
        }
      } else {
        Attend(segment, tile, h, s_.active, active);
      }
    }
  }

  void FillKeyAngles(i64 request, i64 base, u64 lanes) {
    const contract::RopeParams& rope = params_.rope;
    const i64 first = launch_.plan->requests[static_cast<std::size_t>(request)].key_position_begin;
    const i64 pairs = launch_.rope->pairs();
    for (int t = 0; t < kTileKeys; ++t) {
      if ((lanes >> t & 1) == 0) {
        std::memset(s_.cosines + t * pairs, 0, static_cast<std::size_t>(pairs) * sizeof(float));
        std::memset(s_.sines + t * pairs, 0, static_cast<std::size_t>(pairs) * sizeof(float));
        continue;
      }
      const i64 key = base + t;
      const i64 position =
          rope.key_positions == nullptr
              ? key
              : contract::LoadIndex(rope.key_positions, rope.key_position_is_i64, first + key);
      cursor_.Fill(body_, position, s_.cosines + t * pairs, s_.sines + t * pairs);
    }
  }

  // Where all lanes are wanted, the addresses of head 0 and an offset do; else lanes are redirected
  // to zeros in `rows`. Prefetches only whole tiles.
  static RowSource Source(const SideParams& side, i64 head, const u8* const* data,
                          const u8* const* scales, bool whole, const HeadRows& rows) {
    RowSource source;
    source.format = static_cast<Format>(side.format);
    source.head_dim = side.head_dim;
    source.rows = whole ? data : rows.rows;
    source.scales = whole ? scales : rows.scales;
    source.row_offset = whole ? head * side.head_stride : 0;
    source.scale_offset = whole ? head * side.scale_head_stride : 0;
    return source;
  }

  void DecodeKeyTile(const SegmentParams& segment, const TileRows& tile, i64 h, u64 lanes,
                     const Rotation* rotation, const TileRows* ahead) {
    const i64 head = item_.head_begin + h;
    const bool whole = lanes == kAllLanes;
    if (!whole) KeyRows(segment.k, tile, head, lanes, *s_.key_rows);
    RowSource source = Source(segment.k, head, tile.k, tile.k_scales, whole, *s_.key_rows);
    if (whole && ahead != nullptr) {
      source.ahead = ahead->k;
      source.ahead_scales = ahead->k_scales;
    }
    body_.decode_keys(launch_.config, source, rotation, s_.key_tile);
  }

  void DecodeValueTile(const SegmentParams& segment, const TileRows& tile, i64 h, u64 lanes,
                       const TileRows* ahead) {
    const i64 head = item_.head_begin + h;
    const bool whole = lanes == kAllLanes && !segment.v.interleaved4;
    if (!whole) ValueRows(segment.v, tile, head, lanes, *s_.value_rows);
    if (segment.v.interleaved4) {
      LinearizeScales(segment.v, tile, lanes, s_.scale_rows, *s_.value_rows);
    }
    RowSource source = Source(segment.v, head, tile.v, tile.v_scales, whole, *s_.value_rows);
    if (whole && ahead != nullptr) {
      source.ahead = ahead->v;
      source.ahead_scales = ahead->v_scales;
    }
    body_.decode_values(launch_.config, source, s_.value_tile);
  }

  void Attend(const SegmentParams& segment, const TileRows& tile, i64 h, const i64* active,
              i64 active_count) {
    const i64 head = item_.head_begin + h;
    const i64 query_bytes = body_.query_row_bytes(launch_.config);
    const i64 output_floats = body_.output_row_floats(launch_.config);
    int count = 0;
    for (i64 a = 0; a < active_count; ++a) {
      const i64 r = active[a];
      for (i64 g = 0; g < launch_.group; ++g) {
        const i64 state = StateIndex(h, r, g);
        RowRef& ref = s_.refs[count++];
        ref.query = s_.queries + state * query_bytes;
        ref.output = s_.outputs + state * output_floats;
        ref.state = s_.states + state * contract::kStateFloats;
        ref.visible = s_.visible[r];
        ref.slope = params_.alibi_slopes == nullptr
                        ? 0.0f
                        : params_.alibi_slopes[(head * launch_.group + g) * params_.alibi_stride];
        ref.first_distance =
            static_cast<float>(tile.base - contract::BiasAnchorOf(params_, s_.rows[r], ref.slope));
      }
    }
    TileJob job;
    job.config = &launch_.config;
    job.key_tile = s_.key_tile;
    job.value_tile = s_.value_tile;
    job.key_format = static_cast<Format>(segment.k.format);
    job.rows = s_.refs;
    job.row_count = count;
    const double scale = params_.logit_scale * double{GlobalOf(segment.k, head)};
    job.logits.scale = static_cast<float>(scale);
    job.logits.scale_log2 = static_cast<float>(scale * kLog2E);
    job.logits.soft_cap = params_.soft_cap;
    job.logits.bias_before_cap = params_.bias_before_cap != 0;
    job.logits.plain = params_.soft_cap == 0.0f && params_.alibi_slopes == nullptr;
    body_.attend(job);
  }

  // ---------------------------------------------------------------- results

  // The output of a state in natural order, V global applied, to `natural`.
  void Natural(const SideParams& v, i64 head, i64 state, float* natural) {
    body_.finish_output(launch_.config,
                        s_.outputs + state * body_.output_row_floats(launch_.config), natural);
    const float global = GlobalOf(v, head);
    if (global == 1.0f) return;
    for (int i = 0; i < launch_.config.head_dim_vo; ++i) natural[i] *= global;
  }

  // Merges the states into the totals and empties them: the next segment has another V global, and
  // long sums drift (kFoldKeys).
  void Fold(const SegmentParams& segment) {
    const int dim = launch_.config.head_dim_vo;
    for (i64 h = 0; h < size_.head_count; ++h) {
      for (i64 i = StateIndex(h, 0, 0); i < StateIndex(h + 1, 0, 0); ++i) {
        Natural(segment.v, item_.head_begin + h, i, s_.natural);
        AddState(s_.states + i * contract::kStateFloats, s_.natural,
                 s_.total_states + i * contract::kStateFloats, s_.total_outputs + i * dim, dim);
      }
    }
    ResetStates(s_.outputs, s_.states, body_.output_row_floats(launch_.config));
  }

  void WriteAll() {
    for (i64 r = 0; r < size_.rows; ++r) {
      const ItemRow& row = s_.rows[r];
      const contract::RowBlock& block = launch_.plan->blocks[static_cast<std::size_t>(row.block)];
      for (i64 h = 0; h < size_.head_count; ++h) {
        const i64 head = item_.head_begin + h;
        for (i64 g = 0; g < launch_.group; ++g) {
          const i64 q_head = head * launch_.group + g;
          const RowState state = FinalState(head, StateIndex(h, r, g));
          if (block.splits == 1) {
            WriteResult(launch_, row, q_head, state, s_.natural + launch_.config.head_dim_vo);
          } else {
            const i64 vector = row.row_in_block * block.q_head_count + q_head - block.q_head_begin;
            WritePartial(launch_, block, row.split, vector, state);
          }
        }
      }
    }
  }

  RowState FinalState(i64 head, i64 state) {
    RowState result = EmptyState(s_.natural);
    const i64 first = state * contract::kStateFloats;
    if (!size_.folds) {
      std::copy_n(s_.states + first, contract::kStateFloats, result.values);
      Natural(params_.segments[0].v, head, state, s_.natural);
      return result;
    }
    const int dim = launch_.config.head_dim_vo;
    const auto round = [](double value) { return static_cast<float>(value); };
    const double* values = s_.total_states + first;
    const double* output = s_.total_outputs + state * dim;
    std::transform(values, values + contract::kStateFloats, result.values, round);
    std::transform(output, output + dim, s_.natural, round);
    return result;
  }

  const Launch& launch_;
  const AttentionParams& params_;
  const AttentionBody& body_;
  const WorkItem& item_;
  const ItemSize size_;
  ItemScratch s_;
  RopeAngles::Cursor cursor_;
};

// Key positions given by arrays differ between the requests of a shared segment, so its keys must
// be rotated for each of them.
bool WalksSpansAlone(const Launch& launch) {
  return launch.rope != nullptr && launch.params->rope.key_positions != nullptr;
}

}  // namespace

i64 ItemScratchBytes(const Launch& launch, const WorkItem& item) {
  ItemScratch unused;
  return Carve(launch, SizeOf(launch, item, item.span_begin, item.span_count), nullptr, unused);
}

void RunItem(const Launch& launch, const WorkItem& item, std::byte* scratch) {
  const i64 step = WalksSpansAlone(launch) ? 1 : item.span_count;
  for (i64 s = 0; s < item.span_count; s += step) {
    Walk(launch, item, item.span_begin + s, step, scratch).Run();
  }
}

}  // namespace kvilt::cpu
