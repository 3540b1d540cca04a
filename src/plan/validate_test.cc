// Bad requests and plan options, each refused by name.
#include <limits>

#include "src/plan/bad_input.h"

namespace kvilt::plan {
namespace {

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
      {"device index", [](auto& b) { b.request.q.device.index = 3; }, "q.device.index",
       "3, expected 0"},
      {"array device index", [](auto& b) { b.request.q_indptr.device.index = 1; },
       "q_indptr.device.index", "1, expected 0"},
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
      {"empty", [](auto& b) { b.request.q_indptr.size = 0; }, "q_indptr.size", "0, expected"},
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
      {"soft cap tiny", [](auto& b) { b.request.logits_soft_cap = 0x1p-101f; }, "logits_soft_cap",
       "expected 0 (off) or"},
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
      {"far key positions",
       [](auto& b) {
         std::vector<std::int64_t> positions(140, 0);
         positions[139] = (std::int64_t{1} << 40) + 1;
         b.request.rope.emplace().key_positions = b.Array(positions);
       },
       "rope.key_positions[139]", "1099511627777, expected"},
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
  Expect({"indptr empty",
          [&](auto& b) {
            mask(4, {0, 1, 4})(b);
            b.request.mask_indptr.size = 0;
          },
          "mask_indptr.size", "0, expected 3"},
         options);
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
  expect({}, bad, "spec.smem_per_block_bytes", "0, expected > 0", StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kvilt::plan
