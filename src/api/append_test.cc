// AppendKv and DequantizeKv through the public API: what they do.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "src/api/cache_fixture.h"

namespace kvilt {
namespace {

using api::test::CacheMemory;
using api::test::CacheShape;
using api::test::RelativeL2;
using api::test::RowMemory;

Device TestDevice() { return Device::Open("cpu", {.threads = 2}).value(); }

std::vector<float> ReadBack(const Device& device, const CacheMemory& cache, bool is_v,
                            std::int64_t tokens) {
  const std::int64_t head_dim = is_v ? cache.shape.head_dim_v : cache.shape.head_dim_k;
  RowMemory out(tokens, cache.shape.heads, head_dim, 99);
  const TensorView none;
  const Status status =
      DequantizeKv(device, cache.segment, is_v ? none : out.view, is_v ? out.view : none);
  EXPECT_TRUE(status.ok()) << status.message();
  return out.values;
}

TEST(AppendKv, GrowsRequestsByPageTable) {
  const Device device = TestDevice();
  CacheShape shape;
  shape.v_dtype = DType::kBF16;
  shape.head_dim_v = 32;
  CacheMemory cache(shape);
  RowMemory k(11, 2, 64, 1);
  RowMemory v(11, 2, 32, 2);
  AppendRequest request;
  // Two requests: 5 and 2 tokens, then 1 and 3 more.
  const std::vector<std::int64_t> first = {0, 5, 7};
  const std::vector<std::int32_t> second = {0, 1, 4};
  cache.SetTable({0, 2, 4}, {3, 0, 5, 1}, {5, 2});
  request.k = TensorView::Dense(k.values.data(), DType::kF32, {7, 2, 64});
  request.v = TensorView::Dense(v.values.data(), DType::kF32, {7, 2, 32});
  request.cache = cache.segment;
  request.token_indptr = first;
  HealthCounters k_health;
  HealthCounters v_health;
  ASSERT_EQ(AppendKv(device, request, &k_health, &v_health), Status::Ok());

  cache.SetTable({0, 2, 4}, {3, 0, 5, 1}, {6, 5});
  request.k = TensorView::Dense(&k.values[7 * 128], DType::kF32, {4, 2, 64});
  request.v = TensorView::Dense(&v.values[7 * 64], DType::kF32, {4, 2, 32});
  request.cache = cache.segment;
  request.token_indptr = second;
  ASSERT_EQ(AppendKv(device, request, &k_health, &v_health), Status::Ok());
  EXPECT_EQ(k_health, HealthCounters{});
  EXPECT_EQ(v_health, HealthCounters{});

  // Request 0 holds rows 0..4, 7; request 1 holds rows 5, 6, 8, 9, 10.
  const int order[] = {0, 1, 2, 3, 4, 7, 5, 6, 8, 9, 10};
  std::vector<float> k_want;
  std::vector<float> v_want;
  for (int row : order) {
    k_want.insert(k_want.end(), &k.values[static_cast<std::size_t>(row * 128)],
                  &k.values[static_cast<std::size_t>(row * 128)] + 128);
    v_want.insert(v_want.end(), &v.values[static_cast<std::size_t>(row * 64)],
                  &v.values[static_cast<std::size_t>(row * 64)] + 64);
  }
  EXPECT_NEAR(RelativeL2(ReadBack(device, cache, false, 11), k_want), 0.095, 0.02);
  EXPECT_LT(RelativeL2(ReadBack(device, cache, true, 11), v_want), 3e-3);
}

TEST(AppendKv, SlotsSkipAndCount) {
  const Device device = TestDevice();
  CacheMemory cache({});
  CacheMemory untouched({});
  RowMemory rows(4, 2, 64, 3);
  const std::vector<std::int32_t> slots = {23, -1, 0, -1};
  AppendRequest request;
  request.k = rows.view;
  request.v = rows.view;
  request.cache = cache.segment;
  request.slots = slots;
  HealthCounters health;
  health.skipped = 10;
  ASSERT_EQ(AppendKv(device, request, &health, nullptr), Status::Ok());
  EXPECT_EQ(health.skipped, 12) << "counters are added to";
  // NHD: slot 0 is the first row of K, slot 23 the last; all between still hold the poison.
  const std::size_t row_bytes = 2 * 32;
  for (std::size_t i = row_bytes; i < 23 * row_bytes; ++i) ASSERT_EQ(cache.k_data[i], 0xFF);
  EXPECT_NE(std::vector<std::uint8_t>(cache.k_data.begin(), cache.k_data.begin() + 8),
            std::vector<std::uint8_t>(8, 0xFF));

  const std::vector<std::int32_t> none(4, -1);
  request.slots = none;
  request.cache = untouched.segment;
  ASSERT_EQ(AppendKv(device, request), Status::Ok());
  EXPECT_EQ(untouched.Snapshot(), CacheMemory({}).Snapshot());
}

TEST(AppendKv, RaggedByIndptrAndBySlot) {
  const Device device = TestDevice();
  CacheShape shape;
  shape.ragged = true;
  CacheMemory by_table(shape);
  CacheMemory by_slot(shape);
  RowMemory rows(5, 2, 64, 4);
  const std::vector<std::int32_t> indptr = {2, 8, 8, 13};
  std::get<RaggedKv>(by_table.segment.kv).indptr = indptr;
  AppendRequest request;
  request.k = rows.view;
  request.v = rows.view;
  request.cache = by_table.segment;
  const std::vector<std::int64_t> token_indptr = {0, 2, 2, 5};
  request.token_indptr = token_indptr;
  ASSERT_EQ(AppendKv(device, request), Status::Ok());

  const std::vector<std::int64_t> slots = {6, 7, 10, 11, 12};
  request.token_indptr = {};
  request.slots = slots;
  request.cache = by_slot.segment;
  ASSERT_EQ(AppendKv(device, request), Status::Ok());
  EXPECT_EQ(by_table.Snapshot(), by_slot.Snapshot());
}

TEST(AppendKv, P03_packed_pool_of_data_and_scales_equals_the_dense_cache) {
  const Device device = TestDevice();
  CacheShape shape;
  shape.v_layout = KvLayout::kNHD;
  shape.head_dim_k = shape.head_dim_v = 256;
  CacheMemory dense(shape);
  // Rows of [128 data bytes | 16 scale bytes]; K and V are the halves of [pages, 2, ...].
  const std::int64_t row = 144;
  const std::int64_t half = 4 * 2 * row;
  std::vector<std::uint8_t> pool(static_cast<std::size_t>(6 * 2 * half), 0xFF);
  const auto side_at = [&](std::int64_t offset) {
    CacheSide side;
    side.data = TensorView::Dense(pool.data() + offset, DType::kNVFP4, {6, 4, 2, 128});
    side.scales = TensorView::Dense(pool.data() + offset + 128, DType::kE4M3, {6, 4, 2, 16});
    for (TensorView* view : {&side.data, &side.scales}) {
      view->stride[0] = 2 * half;
      view->stride[1] = 2 * row;
      view->stride[2] = row;
    }
    return side;
  };
  Segment packed;
  packed.kv = PagedKv{side_at(0), side_at(half), {}};
  RowMemory k(9, 2, 256, 5);
  RowMemory v(9, 2, 256, 6);
  AppendRequest request;
  request.k = k.view;
  request.v = v.view;
  const std::vector<std::int64_t> slots = {0, 5, 2, 23, 9, 10, 11, 17, 18};
  request.slots = slots;
  request.cache = dense.segment;
  ASSERT_EQ(AppendKv(device, request), Status::Ok());
  request.cache = packed;
  const Status status = AppendKv(device, request);
  ASSERT_TRUE(status.ok()) << status.message();
  for (std::int64_t at = 0; at < 6 * 4 * 2; ++at) {
    const std::int64_t offset = at / 8 * 2 * half + at % 8 * row;
    const auto* k_row = pool.data() + offset;
    const auto* v_row = k_row + half;
    ASSERT_EQ(std::memcmp(k_row, &dense.k_data[static_cast<std::size_t>(at * 128)], 128), 0);
    ASSERT_EQ(std::memcmp(v_row, &dense.v_data[static_cast<std::size_t>(at * 128)], 128), 0);
    ASSERT_EQ(std::memcmp(k_row + 128, &dense.k_scales[static_cast<std::size_t>(at * 16)], 16), 0);
    ASSERT_EQ(std::memcmp(v_row + 128, &dense.v_scales[static_cast<std::size_t>(at * 16)], 16), 0);
  }
}

// A multiplier by value, as an array of one, and per head: the same bytes.
void ExpectFormsAgree(const Device& device, float global) {
  const float same[2] = {global, global};
  std::vector<std::vector<std::vector<std::uint8_t>>> snapshots;
  RowMemory rows(4, 2, 64, 7);
  for (int form = 0; form < 3; ++form) {
    CacheShape shape;
    shape.k_dtype = DType::kE4M3;
    CacheMemory cache(shape);
    for (CacheSide* side : {&cache.k(), &cache.v()}) {
      if (form == 0) {
        side->global.value = global;
      } else {
        side->global.array = same;
        side->global.array_size = form;
      }
    }
    cache.SetTable({0, 1}, {2}, {4});
    const std::vector<std::int64_t> token_indptr = {0, 4};
    const AppendRequest request{rows.view, rows.view, cache.segment, token_indptr, {}, true};
    ASSERT_EQ(AppendKv(device, request), Status::Ok());
    snapshots.push_back(cache.Snapshot());
  }
  EXPECT_EQ(snapshots[0], snapshots[1]);
  EXPECT_EQ(snapshots[0], snapshots[2]);
}

TEST(AppendKv, P16_scalar_and_per_head_globals_agree) { ExpectFormsAgree(TestDevice(), 0.125f); }
TEST(AppendKv, P15_no_global_is_exactly_one) { ExpectFormsAgree(TestDevice(), 1.0f); }

TEST(AppendKv, P27_four_over_six_changes_the_bytes_and_lowers_the_error) {
  const Device device = TestDevice();
  RowMemory rows(24, 2, 64, 8);
  std::vector<std::int64_t> slots(24);
  std::iota(slots.begin(), slots.end(), 0);
  double errors[2];
  for (bool four_over_six : {false, true}) {
    CacheMemory cache({});
    cache.k().global.value = 0.01f;
    AppendRequest request{rows.view, rows.view, cache.segment, {}, slots, four_over_six};
    ASSERT_EQ(AppendKv(device, request), Status::Ok());
    cache.SetTable({0, 6}, {0, 1, 2, 3, 4, 5}, {24});
    errors[four_over_six] = RelativeL2(ReadBack(device, cache, false, 24), rows.values);
  }
  EXPECT_LT(errors[1], errors[0] * 0.97);
}

TEST(AppendKv, P05_interleaved_scales_read_as_linear_are_wrong) {
  const Device device = TestDevice();
  CacheShape shape;
  shape.pages = 64;
  shape.page_size = 16;
  shape.interleaved_v = true;
  shape.head_dim_k = shape.head_dim_v = 128;
  CacheMemory cache(shape);
  RowMemory rows(1024, 2, 128, 9);
  std::vector<std::int64_t> slots(1024);
  std::iota(slots.begin(), slots.end(), 0);
  cache.k().global.value = cache.v().global.value = 0.02f;
  const AppendRequest request{rows.view, rows.view, cache.segment, {}, slots, false};
  ASSERT_EQ(AppendKv(device, request), Status::Ok());
  std::vector<std::int32_t> pages(64);
  std::iota(pages.begin(), pages.end(), 0);
  cache.SetTable({0, 64}, pages, {1024});
  EXPECT_NEAR(RelativeL2(ReadBack(device, cache, true, 1024), rows.values), 0.095, 3e-3);
  cache.v().scale_layout = ScaleLayout::kLinear;
  cache.v().scale_row_blocks = 0;
  EXPECT_GT(RelativeL2(ReadBack(device, cache, true, 1024), rows.values), 0.7);
}

TEST(AppendKv, P08_width_follows_the_dtype_for_every_pair) {
  const Device device = TestDevice();
  const DType dtypes[] = {DType::kF32,  DType::kBF16, DType::kF16,
                          DType::kE4M3, DType::kE5M2, DType::kNVFP4};
  const double bounds[] = {0, 2e-3, 3e-4, 0.03, 0.06, 0.12};
  RowMemory rows(6, 2, 64, 10);
  const std::vector<std::int64_t> slots = {0, 1, 2, 3, 4, 5};
  for (std::size_t k = 0; k < 6; ++k) {
    for (std::size_t v = 0; v < 6; ++v) {
      CacheShape shape;
      shape.k_dtype = dtypes[k];
      shape.v_dtype = dtypes[v];
      CacheMemory cache(shape);
      const AppendRequest request{rows.view, rows.view, cache.segment, {}, slots, false};
      ASSERT_EQ(AppendKv(device, request), Status::Ok());
      cache.SetTable({0, 2}, {0, 1}, {6});
      EXPECT_LE(RelativeL2(ReadBack(device, cache, false, 6), rows.values), bounds[k]);
      EXPECT_LE(RelativeL2(ReadBack(device, cache, true, 6), rows.values), bounds[v]);
    }
  }
}

// Any split of the tokens over calls, any page size and page order: the same values come back.
RC_GTEST_PROP(AppendKv, ManyCallsEqualOne, ()) {
  const Device device = TestDevice();
  CacheShape shape;
  shape.page_size = *rc::gen::inRange<std::int64_t>(1, 9);
  const std::int64_t tokens = *rc::gen::inRange<std::int64_t>(1, 30);
  const std::int64_t pages = (tokens + shape.page_size - 1) / shape.page_size;
  shape.pages = pages + *rc::gen::inRange<std::int64_t>(0, 3);
  shape.v_dtype = DType::kE5M2;
  std::vector<std::int32_t> order(static_cast<std::size_t>(shape.pages));
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 random(*rc::gen::arbitrary<unsigned>());
  std::shuffle(order.begin(), order.end(), random);
  RowMemory rows(tokens, 2, 64, 12);
  CacheMemory cache(shape);
  for (std::int64_t done = 0; done < tokens;) {
    const std::int64_t count = *rc::gen::inRange<std::int64_t>(1, tokens - done + 1);
    cache.SetTable({0, pages}, order, {done + count});
    const TensorView part = TensorView::Dense(&rows.values[static_cast<std::size_t>(done * 128)],
                                              DType::kF32, {count, 2, 64});
    const std::vector<std::int64_t> token_indptr = {0, count};
    AppendRequest request{part, part, cache.segment, token_indptr, {}, false};
    RC_ASSERT(AppendKv(device, request).ok());
    done += count;
  }
  CacheShape one_page = shape;
  one_page.pages = 1;
  one_page.page_size = tokens;
  CacheMemory whole(one_page);
  whole.SetTable({0, 1}, {0}, {tokens});
  const std::vector<std::int64_t> token_indptr = {0, tokens};
  const AppendRequest request{rows.view, rows.view, whole.segment, token_indptr, {}, false};
  RC_ASSERT(AppendKv(device, request).ok());
  RC_ASSERT(ReadBack(device, cache, false, tokens) == ReadBack(device, whole, false, tokens));
  RC_ASSERT(ReadBack(device, cache, true, tokens) == ReadBack(device, whole, true, tokens));
}

TEST(DequantizeKv, PaddedTableAndLastPageLenReadTheSame) {
  const Device device = TestDevice();
  CacheMemory cache({});
  RowMemory rows(24, 2, 64, 13);
  std::vector<std::int64_t> slots(24);
  std::iota(slots.begin(), slots.end(), 0);
  const AppendRequest request{rows.view, rows.view, cache.segment, {}, slots, false};
  ASSERT_EQ(AppendKv(device, request), Status::Ok());

  cache.SetTable({0, 2, 2, 3}, {4, 1, 0}, {7, 0, 2});
  const std::vector<float> csr = ReadBack(device, cache, false, 9);
  PageTable& table = std::get<PagedKv>(cache.segment.kv).table;
  const std::vector<std::int32_t> last = {3, 4, 2};
  table.kv_len = {};
  table.last_page_len = last;
  EXPECT_EQ(ReadBack(device, cache, false, 9), csr);

  const std::vector<std::int64_t> padded = {4, 1, -7, -7, -7, -7, 0, -7, -7};
  table = {};
  table.indices = padded;
  table.row_stride = 3;
  table.kv_len = cache.kv_len;
  EXPECT_EQ(ReadBack(device, cache, false, 9), csr);
}

TEST(DequantizeKv, SharedSegmentHasOneRow) {
  const Device device = TestDevice();
  CacheShape shape;
  shape.k_dtype = shape.v_dtype = DType::kF32;
  CacheMemory cache(shape);
  RowMemory rows(3, 2, 64, 14);
  const std::vector<std::int64_t> slots = {8, 9, 10};
  const AppendRequest request{rows.view, rows.view, cache.segment, {}, slots, false};
  ASSERT_EQ(AppendKv(device, request), Status::Ok());
  cache.SetTable({0, 1}, {2}, {3});
  cache.segment.owners = {0, 4};
  EXPECT_EQ(ReadBack(device, cache, true, 3), rows.values);
}

}  // namespace
}  // namespace kvilt
