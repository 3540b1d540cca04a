// One case for each thing that a user can get wrong: the message names operand, field and value.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "kvilt/attention.h"
#include "src/plan/paths.h"
#include "src/plan/request_builder.h"

namespace kvilt::plan {
namespace {

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

// Two decode requests over paged NVFP4 with every optional tensor that goes together.
RequestOptions Base() {
  RequestOptions options = Decode({40, 100});
  options.segments[0].k = DType::kNVFP4;
  options.segments[0].v = DType::kNVFP4;
  return options;
}

PagedKv& Paged(RequestBuilder& b) { return std::get<PagedKv>(b.request.segments[0].kv); }

struct BadInput {
  std::string name;
  std::function<void(RequestBuilder&)> spoil;
  std::string field;  // The whole field.
  std::string text;   // Part of the message: the value found.
  StatusCode code = StatusCode::kInvalidArgument;
};

void Expect(const BadInput& bad, const RequestOptions& options = Base(),
            const PlanOptions& plan_options = {}) {
  SCOPED_TRACE(bad.name);
  RequestBuilder builder(options);
  const DeviceSpec spec = CpuSpec(SimdTarget::kAvx512Bf16, 2);
  ASSERT_TRUE(MakePlan(builder.request, spec, plan_options).ok())
      << MakePlan(builder.request, spec, plan_options).status().message();
  bad.spoil(builder);
  const Result<Plan> plan = MakePlan(builder.request, spec, plan_options);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().field(), bad.field);
  EXPECT_EQ(plan.status().code(), bad.code) << plan.status().message();
  EXPECT_NE(plan.status().message().find(bad.text), std::string::npos) << plan.status().message();
  EXPECT_NE(plan.status().message().find("expected"), std::string::npos) << plan.status().message();
}

TEST(BadInput, Query) {
  const BadInput cases[] = {
      {"rank", [](auto& b) { b.request.q.rank = 2; }, "q.rank", "2, expected 3"},
      {"rank beyond the array", [](auto& b) { b.request.q.rank = 77; }, "q.rank", "77"},
      {"missing", [](auto& b) { b.request.q = {}; }, "q", "not given"},
      {"dtype", [](auto& b) { b.request.q.dtype = DType::kE5M2; }, "q.dtype", "e5m2"},
      {"negative extent", [](auto& b) { b.request.q.shape[0] = -1; }, "q.shape[0]", "-1"},
      {"negative stride", [](auto& b) { b.request.q.stride[1] = -128; }, "q.stride[1]", "-128"},
      {"P04 innermost stride", [](auto& b) { b.request.q.stride[2] = 2; }, "q.stride[2]", "2 (row"},
      {"null", [](auto& b) { b.request.q.data = nullptr; }, "q.data", "null"},
      {"misaligned", [](auto& b) { b.request.q.data = static_cast<char*>(b.request.q.data) + 1; },
       "q.data", "multiple of 2"},
      {"device", [](auto& b) { b.request.q.device.kind = DeviceKind::kCuda; }, "q.device", "cuda"},
      {"P79 group", [](auto& b) { b.request.q.shape[1] = 31; }, "q.shape[1]", "31"},
      {"head dim", [](auto& b) { b.request.q.shape[2] = 100; }, "q.shape[2]", "head_dim 100"},
      {"head dim 576", [](auto& b) { b.request.q.shape[2] = 576; }, "q.shape[2]", "head_dim 576",
       StatusCode::kUnsupported},
      {"head dim differs", [](auto& b) { b.request.q.shape[2] = 64; }, "segments[0].k.data.shape",
       "head_dim 128, expected 64"},
      {"overflow of bytes", [](auto& b) { b.request.q.stride[0] = kHuge / 2 + 2; }, "q.stride[0]",
       "overflows 64 bits"},
      {"overflow of elements", [](auto& b) { b.request.q.shape[0] = kHuge; }, "q.shape[1]",
       "overflows 64 bits"},
      {"scales of bf16", [](auto& b) { b.request.q_scales = b.request.q; }, "q_scales",
       "given for a bf16 query"},
  };
  for (const BadInput& bad : cases) Expect(bad);
  RequestOptions nvfp4 = Base();
  nvfp4.q = DType::kNVFP4;
  Expect({"P08 scales missing", [](auto& b) { b.request.q_scales = {}; }, "q_scales", "not given"},
         nvfp4);
  Expect({"scales shape", [](auto& b) { b.request.q_scales.shape[2] = 9; }, "q_scales.shape[2]",
          "9, expected 8"},
         nvfp4);
}

TEST(BadInput, QueryIndptr) {
  const BadInput cases[] = {
      {"missing", [](auto& b) { b.request.q_indptr = {}; }, "q_indptr", "not given"},
      {"first",
       [](auto& b) {
         b.request.q_indptr = b.Array({1, 1, 2});
       },
       "q_indptr[0]", "1, "},
      {"decreasing",
       [](auto& b) {
         b.request.q_indptr = b.Array({0, 2, 1});
       },
       "q_indptr[2]", "1 after 2"},
      {"beyond q",
       [](auto& b) {
         b.request.q_indptr = b.Array({0, 1, 3});
       },
       "q_indptr[2]", "3, "},
      {"dtype", [](auto& b) { b.request.q_indptr.dtype = DType::kF32; }, "q_indptr.dtype", "f32"},
      {"null", [](auto& b) { b.request.q_indptr.data = nullptr; }, "q_indptr.data", "null"},
      {"device", [](auto& b) { b.request.q_indptr.device.kind = DeviceKind::kCuda; },
       "q_indptr.device", "cuda"},
  };
  for (const BadInput& bad : cases) Expect(bad);
}

TEST(BadInput, Outputs) {
  const BadInput cases[] = {
      {"missing", [](auto& b) { b.request.out = {}; }, "out", "not given"},
      {"dtype", [](auto& b) { b.request.out.dtype = DType::kE4M3; }, "out.dtype", "e4m3"},
      {"rows", [](auto& b) { b.request.out.shape[0] = 1; }, "out.shape[0]", "1, expected 2"},
      {"dims", [](auto& b) { b.request.out.shape[2] = 64; }, "out.shape[2]", "64, expected 128"},
      {"null", [](auto& b) { b.request.out.data = nullptr; }, "out.data", "null"},
      {"overlaps q", [](auto& b) { b.request.out.data = b.request.q.data; }, "out", "overlaps q"},
      {"overlaps a cache", [](auto& b) { b.request.out.data = Paged(b).v.scales.data; }, "out",
       "overlaps segments[0].v.scales"},
      {"rows overlap", [](auto& b) { b.request.out.stride[0] = 64; }, "out.stride[0]", "64"},
      {"lse dtype", [](auto& b) { b.request.lse.dtype = DType::kBF16; }, "lse.dtype", "bf16"},
      {"lse heads", [](auto& b) { b.request.lse.shape[1] = 8; }, "lse.shape[1]", "8, expected 32"},
      {"lse null", [](auto& b) { b.request.lse.data = nullptr; }, "lse.data", "null"},
      {"lse in out", [](auto& b) { b.request.lse.data = b.request.out.data; }, "lse",
       "overlaps out"},
      {"lse base", [](auto& b) { b.request.lse_base = static_cast<LseBase>(9); }, "lse_base", "9"},
      {"base without lse",
       [](auto& b) {
         b.request.lse = {};
         b.request.lse_base = LseBase::kTwo;
       },
       "lse_base", "without an lse"},
  };
  for (const BadInput& bad : cases) Expect(bad);
}

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
          "segments[0].owners[1]", "1, expected"},
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

TEST(BadInput, Numbers) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const BadInput cases[] = {
      {"mask unset", [](auto& b) { b.request.mask = MaskMode::kUnset; }, "mask", "kUnset"},
      {"mask unknown", [](auto& b) { b.request.mask = static_cast<MaskMode>(9); }, "mask",
       "unknown"},
      {"window left", [](auto& b) { b.request.window_left = -2; }, "window_left", "-2"},
      {"window right", [](auto& b) { b.request.window_right = -7; }, "window_right", "-7"},
      {"soft cap negative", [](auto& b) { b.request.logits_soft_cap = -1; }, "logits_soft_cap",
       "-1"},
      {"soft cap NaN", [nan](auto& b) { b.request.logits_soft_cap = nan; }, "logits_soft_cap",
       "nan"},
      {"sm_scale", [nan](auto& b) { b.request.sm_scale = nan; }, "sm_scale", "nan"},
      {"q_scale", [](auto& b) { b.request.q_scale = 0; }, "q_scale", "0, expected"},
      {"bias_before_cap", [](auto& b) { b.request.bias_before_cap = true; }, "bias_before_cap",
       "true without alibi"},
      {"positions unused",
       [](auto& b) {
         b.request.q_positions = b.Array({0, 1});
       },
       "q_positions", "without a window"},
      {"positions size",
       [](auto& b) {
         b.request.window_left = 5;
         b.request.q_positions = b.Array({0});
       },
       "q_positions.size", "1, expected 2"},
      {"sink size",
       [](auto& b) { b.request.sink = TensorView::Dense(b.Address(32), DType::kF32, {8}); },
       "sink.shape[0]", "8, expected 32"},
      {"sink dtype",
       [](auto& b) { b.request.sink = TensorView::Dense(b.Address(64), DType::kBF16, {32}); },
       "sink.dtype", "bf16"},
      {"slopes",
       [](auto& b) {
         b.request.alibi.emplace();
         b.request.alibi->slopes = TensorView::Dense(b.Address(128), DType::kF32, {31});
       },
       "alibi.slopes.shape[0]", "31, expected 32"},
      {"rotary dim", [](auto& b) { b.request.rope.emplace().rotary_dim = 130; }, "rope.rotary_dim",
       "130"},
      {"odd rotary dim", [](auto& b) { b.request.rope.emplace().rotary_dim = 7; },
       "rope.rotary_dim", "7, expected even"},
      {"theta", [](auto& b) { b.request.rope.emplace().theta = 0; }, "rope.theta", "0"},
      {"rope scale", [](auto& b) { b.request.rope.emplace().scale = -1; }, "rope.scale", "-1"},
      {"llama31",
       [](auto& b) { b.request.rope.emplace().llama31.emplace().high_freq_factor = 0.5; },
       "rope.llama31.high_freq_factor", "0.5"},
      {"key positions",
       [](auto& b) {
         b.request.rope.emplace().key_positions = b.Array({1, 2, 3});
       },
       "rope.key_positions.size", "3, expected 140"},
  };
  for (const BadInput& bad : cases) Expect(bad);
}

TEST(BadInput, P64_MaskBits) {
  RequestOptions options = Decode({5, 7});
  options.q_len = {1, 3};
  options.mask = MaskMode::kNone;
  const auto mask = [](std::int64_t bytes, std::vector<std::int64_t> indptr = {}) {
    return [=](RequestBuilder& b) {
      b.request.mask = MaskMode::kCustom;
      b.request.mask_bits = TensorView::Dense(b.Address(16), DType::kU8, {bytes});
      if (!indptr.empty()) b.request.mask_indptr = b.Array(indptr);
    };
  };
  // 5 bits and 21 bits: 1 and 3 bytes.
  for (const auto& good : {mask(4), mask(9, {0, 1, 4}), mask(9, {5, 6, 9})}) {
    RequestBuilder builder(options);
    good(builder);
    EXPECT_TRUE(MakePlan(builder.request, CpuSpec(SimdTarget::kAvx2, 1)).ok());
  }
  Expect({"length", mask(5), "mask_bits.shape[0]", "5 bytes, expected 4"}, options);
  Expect({"short", mask(3), "mask_bits.shape[0]", "3 bytes, expected 4"}, options);
  Expect({"indptr step", mask(9, {0, 1, 5}), "mask_indptr[2]", "5 after 1, expected 4"}, options);
  Expect({"indptr beyond", mask(3, {0, 1, 4}), "mask_bits.shape[0]", "3, expected >= 4"}, options);
  Expect({"missing", [](auto& b) { b.request.mask = MaskMode::kCustom; }, "mask_bits", "not given"},
         options);
  Expect({"superfluous",
          [](auto& b) { b.request.mask_bits = TensorView::Dense(b.Address(16), DType::kU8, {4}); },
          "mask_bits", "given with mask kNone"},
         options);
  Expect({"device",
          [&](auto& b) {
            mask(4)(b);
            b.request.mask_bits.device.kind = DeviceKind::kCuda;
          },
          "mask_bits.device", "cuda"},
         options);
  RequestOptions tree = Decode({2, 7});
  tree.q_len = {3, 3};
  tree.mask = MaskMode::kNone;
  Expect({"tree",
          [](auto& b) {
            b.request.mask = MaskMode::kTree;
            b.request.mask_bits = TensorView::Dense(b.Address(16), DType::kU8, {4});
          },
          "mask", "q_len 3 > kv_len 2 (request 0)"},
         tree);
}

TEST(BadInput, PlanOptions) {
  RequestBuilder builder(Base());
  const DeviceSpec spec = CpuSpec(SimdTarget::kAvx512Bf16, 2);
  const auto expect = [&](const PlanOptions& options, const DeviceSpec& device,
                          const std::string& field, const std::string& text, StatusCode code) {
    const Result<Plan> plan = MakePlan(builder.request, device, options);
    ASSERT_FALSE(plan.ok());
    EXPECT_EQ(plan.status().field(), field);
    EXPECT_EQ(plan.status().code(), code);
    EXPECT_NE(plan.status().message().find(text), std::string::npos) << plan.status().message();
  };
  PlanOptions options;
  options.fixed_split_rows = 64;
  expect(options, spec, "options.fixed_split_rows", "64 without kFixed",
         StatusCode::kInvalidArgument);
  options = {};
  options.split = SplitMode::kFixed;
  expect(options, spec, "options.fixed_split_rows", "0 with kFixed", StatusCode::kInvalidArgument);
  options = {};
  options.workspace_limit_bytes = -2;
  expect(options, spec, "options.workspace_limit_bytes", "-2", StatusCode::kInvalidArgument);
  options = {};
  options.path = "cpu/magic";
  expect(options, spec, "options.path", "cpu/avx512_bf16, cpu/f32", StatusCode::kInvalidArgument);
  options = {};
  options.path = "cpu/avx512_bf16";
  expect(options, CpuSpec(SimdTarget::kAvx2, 2), "options.path", "needs SIMD target avx512_bf16",
         StatusCode::kUnsupported);
  DeviceSpec bad = spec;
  bad.slots = 0;
  expect({}, bad, "spec.slots", "0, expected", StatusCode::kInvalidArgument);
  bad = spec;
  bad.kind = DeviceKind::kCuda;
  bad.name = "sm_90";
  expect({}, bad, "spec.kind", "cuda (sm_90)", StatusCode::kUnsupported);
}

}  // namespace
}  // namespace kvilt::plan
