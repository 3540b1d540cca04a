// Bad caches, tables and segments, each refused by name.
#include <limits>

#include "src/plan/bad_input.h"

namespace kvilt::plan {
namespace {

TEST(BadInput, CacheSides) {
  const std::string k = "segments[0].k.";
  const BadInput cases[] = {
      {"rank", [](auto& b) { Paged(b).k.data.rank = 3; }, k + "data.rank", "3, expected 4"},
      {"dtype", [](auto& b) { Paged(b).k.data.dtype = DType::kU8; }, k + "data.dtype", "u8"},
      {"P04 innermost stride", [](auto& b) { Paged(b).k.data.stride[3] = 2; }, k + "data.stride[3]",
       "2 (row axis), expected 1"},
      {"P04 scales' innermost stride", [](auto& b) { Paged(b).v.scales.stride[3] = 4; },
       "segments[0].v.scales.stride[3]", "4 (row axis), expected 1"},
      {"negative page stride", [](auto& b) { Paged(b).k.data.stride[0] = -1; },
       k + "data.stride[0]", "-1 (pages axis)"},
      {"null", [](auto& b) { Paged(b).k.data.data = nullptr; }, k + "data.data", "null"},
      {"null scales", [](auto& b) { Paged(b).k.scales.data = nullptr; }, k + "scales.data", "null"},
      {"P08 scales missing", [](auto& b) { Paged(b).k.scales = {}; }, k + "scales", "not given"},
      {"P08 scales superfluous",
       [](auto& b) {
         Paged(b).k.data.dtype = DType::kE4M3;
         Paged(b).k.data.shape[3] = 64;
       },
       k + "scales", "given for a e4m3 cache"},
      {"scales dtype", [](auto& b) { Paged(b).k.scales.dtype = DType::kU8; }, k + "scales.dtype",
       "u8"},
      {"scales row", [](auto& b) { Paged(b).k.scales.shape[3] = 4; }, k + "scales.shape[3]",
       "4, expected 8"},
      {"scales pages", [](auto& b) { Paged(b).k.scales.shape[0] = 1; }, k + "scales.shape[0]",
       "1, expected 10"},
      {"head dim", [](auto& b) { Paged(b).k.data.shape[3] = 60; }, k + "data.shape[3]",
       "head_dim 120 for nvfp4"},
      {"page size", [](auto& b) { Paged(b).k.data.shape[1] = 0; }, k + "data.shape[1]",
       "page_size 0"},
      {"heads of v",
       [](auto& b) {
         Paged(b).v.data.shape[2] = 4;
         Paged(b).v.scales.shape[2] = 4;
       },
       "segments[0].v.data.shape", "kv_heads 4, expected 8"},
      {"pages of v",
       [](auto& b) {
         Paged(b).v.data.shape[0] = 9;
         Paged(b).v.scales.shape[0] = 9;
       },
       "segments[0].v.data.shape", "pages 9, expected 10"},
      {"P81 page stride overflows", [](auto& b) { Paged(b).k.data.stride[0] = kHuge / 8; },
       k + "data.stride[0]", "overflows 64 bits"},
      {"layout", [](auto& b) { Paged(b).k.layout = static_cast<KvLayout>(7); }, k + "layout", "7"},
      {"interleaved k", [](auto& b) { Paged(b).k.scale_layout = ScaleLayout::kInterleaved4; },
       k + "scale_layout", "kInterleaved4"},
      {"row blocks of linear scales", [](auto& b) { Paged(b).v.scale_row_blocks = 8; },
       "segments[0].v.scale_row_blocks", "8, expected 0"},
      {"P06 sliced interleaved v",
       [](auto& b) {
         Paged(b).v.scale_layout = ScaleLayout::kInterleaved4;
         Paged(b).v.scale_row_blocks = 16;
       },
       "segments[0].v.scale_row_blocks", "16, expected 8"},
  };
  for (const BadInput& bad : cases) Expect(bad);

  RequestOptions page_5 = Base();
  page_5.segments[0].page_size = 5;
  Expect({"P06 interleaved page size",
          [](auto& b) {
            Paged(b).v.scale_layout = ScaleLayout::kInterleaved4;
            Paged(b).v.scale_row_blocks = 8;
          },
          "segments[0].v.scale_layout", "page_size 5"},
         page_5);
}

TEST(BadInput, Globals) {
  const auto set = [](float value) {
    return [value](RequestBuilder& b) { Paged(b).k.global.value = value; };
  };
  const std::string field = "segments[0].k.global.value";
  Expect({"zero", set(0.0f), field, "0, expected"});
  Expect({"negative", set(-1.0f), field, "-1, expected"});
  Expect({"NaN", set(std::numeric_limits<float>::quiet_NaN()), field, "nan"});
  Expect({"infinite", set(std::numeric_limits<float>::infinity()), field, "inf"});
  Expect({"P13 reciprocal", set(1e3f), field, "reciprocal"});
  Expect({"tiny", set(1e-9f), field, "reciprocal"});
  static const float kValues[8] = {1, 1, 1, 0, 1, 1, 1, 1};
  Expect({"array value",
          [](auto& b) {
            Paged(b).v.global.array = kValues;
            Paged(b).v.global.array_size = 8;
          },
          "segments[0].v.global.array[3]", "0, expected"});
  Expect({"array size",
          [](auto& b) {
            Paged(b).v.global.array = kValues;
            Paged(b).v.global.array_size = 3;
          },
          "segments[0].v.global.array_size", "3, expected 1 or 8"});
  Expect({"value beside array",
          [](auto& b) {
            Paged(b).v.global.array = kValues;
            Paged(b).v.global.array_size = 1;
            Paged(b).v.global.value = 2;
          },
          "segments[0].v.global.value", "2 beside an array"});
  RequestBuilder builder(Base());
  Paged(builder).k.global = {1e3f, nullptr, 0, {}, true};
  EXPECT_TRUE(MakePlan(builder.request, CpuSpec(SimdTarget::kAvx2, 1)).ok());
}

TEST(BadInput, PageTables) {
  const std::string table = "segments[0].table.";
  const BadInput cases[] = {
      {"decreasing indptr",
       [](auto& b) {
         Paged(b).table.indptr = b.Array({0, 5, 3});
       },
       table + "indptr[2]", "3 after 5"},
      {"indptr size",
       [](auto& b) {
         Paged(b).table.indptr = b.Array({0, 3});
       },
       table + "indptr.size", "2, expected 3"},
      {"indptr beyond indices",
       [](auto& b) {
         Paged(b).table.indptr = b.Array({0, 3, 11});
       },
       table + "indptr[2]", "11, expected <= 10"},
      {"page id",
       [](auto& b) {
         Paged(b).table.indices = b.Array({0, 1, 2, 3, 4, 5, 6, 7, 8, 10});
       },
       table + "indices[9]", "page 10 (request 1, page 6"},
      {"negative page id",
       [](auto& b) {
         Paged(b).table.indices = b.Array({0, -1, 2, 3, 4, 5, 6, 7, 8, 9});
       },
       table + "indices[1]", "page -1 (request 0"},
      {"length beyond pages",
       [](auto& b) {
         Paged(b).table.kv_len = b.Array({49, 100});
       },
       table + "kv_len[0]", "49 tokens need 4 pages"},
      {"negative length",
       [](auto& b) {
         Paged(b).table.kv_len = b.Array({40, -1});
       },
       table + "kv_len[1]", "-1, expected >= 0"},
      {"no length", [](auto& b) { Paged(b).table.kv_len = {}; }, table + "kv_len", "not given"},
      {"two lengths",
       [](auto& b) {
         Paged(b).table.last_page_len = b.Array({8, 4});
       },
       table + "last_page_len", "beside kv_len"},
      {"row stride of CSR", [](auto& b) { Paged(b).table.row_stride = 7; }, table + "row_stride",
       "7, expected 0"},
      {"indices null", [](auto& b) { Paged(b).table.indices.data = nullptr; },
       table + "indices.data", "null"},
      {"indices on a device",
       [](auto& b) { Paged(b).table.indices.device.kind = DeviceKind::kCuda; },
       table + "indices.device", "cuda"},
      {"padded: short rows",
       [](auto& b) {
         Paged(b).table.indptr = {};
         Paged(b).table.row_stride = 5;
       },
       table + "kv_len[1]", "100 tokens need 7 pages"},
      {"padded: indices too short",
       [](auto& b) {
         Paged(b).table.indptr = {};
         Paged(b).table.row_stride = 7;
       },
       table + "indices.size", "10, expected >= 14"},
      {"P67 last page 0",
       [](auto& b) {
         Paged(b).table.kv_len = {};
         Paged(b).table.last_page_len = b.Array({0, 4});
       },
       table + "last_page_len[0]", "0, expected 1..16"},
      {"P67 last page beyond the page",
       [](auto& b) {
         Paged(b).table.kv_len = {};
         Paged(b).table.last_page_len = b.Array({8, 17});
       },
       table + "last_page_len[1]", "17, expected 1..16"},
  };
  for (const BadInput& bad : cases) Expect(bad);
  RequestBuilder builder(Base());
  Paged(builder).table.indices = builder.Array({0, 1, 2, 3, 4, 5, 6, 7, 8, 1000});
  PlanOptions unchecked;
  unchecked.check_pages = false;
  EXPECT_TRUE(MakePlan(builder.request, CpuSpec(SimdTarget::kAvx2, 1), unchecked).ok());
}

TEST(BadInput, PaddedTableThatOverflows) {
  RequestOptions three = Base();
  three.q_len = {1, 1, 1};
  three.segments[0].kv_len = {1, 1, 1};
  Expect({"row stride",
          [](auto& b) {
            Paged(b).table.indptr = {};
            Paged(b).table.row_stride = kHuge;
          },
          "segments[0].table.row_stride", "overflows 64 bits at request 1, expected"},
         three);
}

TEST(BadInput, P67_LastPageLengthsGiveTheLengths) {
  RequestOptions options = Decode({1, 2});
  options.segments[0].page_size = 2;
  options.head_dim_qk = options.head_dim_vo = 64;
  RequestBuilder builder(options);
  Paged(builder).table.kv_len = {};
  Paged(builder).table.last_page_len = builder.Array({1, 2});
  const Plan plan = MakePlan(builder.request, CpuSpec(SimdTarget::kAvx2, 1)).value();
  EXPECT_EQ(plan.kv_len, (std::vector<std::int64_t>{1, 2}));
}

TEST(BadInput, RaggedAndSegments) {
  RequestOptions ragged = Decode({40, 100});
  ragged.segments[0].page_size = 0;
  const auto set = [](std::vector<std::int64_t> values) {
    return [values](RequestBuilder& b) {
      std::get<RaggedKv>(b.request.segments[0].kv).indptr = b.Array(values);
    };
  };
  Expect({"decreasing", set({0, 40, 30}), "segments[0].indptr[2]", "30 after 40"}, ragged);
  Expect({"beyond total", set({0, 40, 141}), "segments[0].indptr[2]", "141, expected <= 140"},
         ragged);
  Expect({"negative", set({-1, 40, 140}), "segments[0].indptr[0]", "-1"}, ragged);
  Expect({"size", set({0, 140}), "segments[0].indptr.size", "2, expected 3"}, ragged);
  Expect({"empty",
          [](RequestBuilder& b) { std::get<RaggedKv>(b.request.segments[0].kv).indptr.size = 0; },
          "segments[0].indptr.size", "0, expected 3"},
         ragged);
  Expect({"empty table", [](auto& b) { Paged(b).table.indptr.size = 0; },
          "segments[0].table.indptr.size", "0, expected 3"});

  RequestOptions shared = Decode({40, 100});
  SegmentOptions prefix;
  prefix.kv_len = {64};
  prefix.owners = {0, 1};
  shared.segments.insert(shared.segments.begin(), prefix);
  Expect({"none", [](auto& b) { b.request.segments.clear(); }, "segments", "none"});
  Expect({"owner out of range",
          [](auto& b) {
            b.request.segments[0].owners = {0, 2};
          },
          "segments[0].owners[1]", "2, expected"},
         shared);
  Expect({"owners not increasing",
          [](auto& b) {
            b.request.segments[0].owners = {1, 1};
          },
          "segments[0].owners[1]", "1, expected no further owner in a batch of 2"},
         shared);
  Expect({"shared after private",
          [](auto& b) { std::swap(b.request.segments[0], b.request.segments[1]); },
          "segments[1].owners", "shared after a private"},
         shared);
  Expect({"heads differ",
          [](auto& b) {
            auto& cache = std::get<PagedKv>(b.request.segments[1].kv);
            cache.k.data.shape[2] = cache.v.data.shape[2] = 4;
          },
          "segments[1].k.data.shape", "4 KV heads, expected 8"},
         shared);
}

}  // namespace
}  // namespace kvilt::plan
