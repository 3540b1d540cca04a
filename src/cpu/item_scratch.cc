#include "src/cpu/item_scratch.h"

namespace kvilt::cpu {

i64 StateCount(const Launch& launch, const ItemSize& size) {
  return size.head_count * size.rows * launch.group;
}

i64 Carve(const Launch& launch, const ItemSize& size, std::byte* base, ItemScratch& s) {
  const BodyConfig& config = launch.config;
  const AttentionBody& body = *launch.body;
  const i64 states = StateCount(launch, size);
  const i64 totals = size.folds ? states : 0;
  const i64 pairs = launch.rope == nullptr ? 0 : launch.rope->pairs();
  Carver carver(base);
  s.key_tile = carver.Take<std::byte>(body.key_tile_bytes(config));
  s.value_tile = carver.Take<std::byte>(body.value_tile_bytes(config));
  s.query_row = carver.Take<float>(contract::RoundUp(config.head_dim_qk, 16));
  s.natural = carver.Take<float>(2 * i64{config.head_dim_vo});
  s.scale_rows = carver.Take<u8>(kTileKeys * i64{kMaxHeadDim / 16});
  s.ring = carver.Take<TileRows>(kRing);
  s.key_rows = carver.Take<HeadRows>(1);
  s.value_rows = carver.Take<HeadRows>(1);
  s.cosines = carver.Take<float>(kTileKeys * pairs);
  s.sines = carver.Take<float>(kTileKeys * pairs);
  s.cursor = carver.Take<double>(RopeAngles::CursorDoubles(static_cast<int>(pairs)));
  s.rows = carver.Take<ItemRow>(size.rows);
  s.visible = carver.Take<u64>(size.rows);
  s.active = carver.Take<i64>(size.rows);
  s.refs = carver.Take<RowRef>(size.rows * launch.group);
  s.queries = carver.Take<std::byte>(states * body.query_row_bytes(config));
  s.outputs = carver.Take<float>(states * body.output_row_floats(config));
  s.states = carver.Take<float>(states * contract::kStateFloats);
  s.total_outputs = carver.Take<double>(totals * config.head_dim_vo);
  s.total_states = carver.Take<double>(totals * contract::kStateFloats);
  return carver.used();
}

ItemSize SizeOf(const Launch& launch, const contract::WorkItem& item, i64 span_begin,
                i64 span_count) {
  ItemSize size;
  size.rows = CountRows(*launch.plan, span_begin, span_count);
  size.head_count = item.head_count;
  size.folds = launch.params->segment_count > 1 ||
               contract::RoundDown(item.key_begin, kFoldKeys) + kFoldKeys < item.key_end;
  return size;
}

}  // namespace kvilt::cpu
