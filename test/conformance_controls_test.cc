// Negative controls: faults that the check must report. Each runs the library on a request that
// reads the memory wrongly, and judges the result by the right one.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "test/conformance_fixture.h"

namespace kvilt {
namespace {

struct Control {
  std::string name;
  std::string problem;
  std::function<void(AttentionRequest&)> fault;
};

CacheSide& K(AttentionRequest& request) {
  return std::visit([](auto& kv) -> CacheSide& { return kv.k; }, request.segments[0].kv);
}
CacheSide& V(AttentionRequest& request) {
  return std::visit([](auto& kv) -> CacheSide& { return kv.v; }, request.segments[0].kv);
}

const std::vector<Control>& Controls() {
  static const std::vector<std::int64_t> one_less = {298};
  static const std::vector<std::int64_t> shifted_rows = {1, 300};
  static const std::vector<std::int64_t> positions = {302};  // 301 is right.
  static const std::string base = "decode kv=299 heads=8/2 d=128 kv_dtype=nvfp4 ";
  static const std::vector<Control> controls = {
      {"P05_swizzled_scales_read_as_linear", base + "scale_layout=interleaved4",
       [](AttentionRequest& r) {
         V(r).scale_layout = ScaleLayout::kLinear;
         V(r).scale_row_blocks = 0;
       }},
      {"linear_scales_read_as_swizzled", base,
       [](AttentionRequest& r) {
         V(r).scale_layout = ScaleLayout::kInterleaved4;
         V(r).scale_row_blocks = 8;
       }},
      {"P58_wrong_lse_base", base, [](AttentionRequest& r) { r.lse_base = LseBase::kTwo; }},
      {"P04_wrong_data_stride", base + "v_pad=16 layout=hnd",
       [](AttentionRequest& r) { V(r).data.stride[2] -= 16; }},
      {"P04_wrong_scale_stride", base + "k_pad=8 layout=hnd",
       [](AttentionRequest& r) { K(r).scales.stride[2] -= 8; }},
      {"kv_len_one_less", base,
       [](AttentionRequest& r) {
         std::get<PagedKv>(r.segments[0].kv).table.kv_len = IndexArray(one_less);
       }},
      {"ragged_rows_off_by_one", base + "cache=ragged",
       [](AttentionRequest& r) {
         std::get<RaggedKv>(r.segments[0].kv).indptr = IndexArray(shifted_rows);
       }},
      {"P15_v_global_forgotten", base + "v_global=0.9",
       [](AttentionRequest& r) { V(r).global.value = 1; }},
      {"k_global_slightly_off", base + "k_global=0.5 sigma=5.6",
       [](AttentionRequest& r) { K(r).global.value = 0.49f; }},
      {"P50_sink_forgotten", base + "sink=3", [](AttentionRequest& r) { r.sink = {}; }},
      {"P60_cap_forgotten", base + "cap=2 sigma=5.6",
       [](AttentionRequest& r) { r.logits_soft_cap = 0; }},
      {"P62_window_off_by_one", base + "window=17 poison=off",
       [](AttentionRequest& r) { r.window_left = 16; }},
      {"P31_verify_without_the_causal_mask", base + "q=4 mask=causal",
       [](AttentionRequest& r) { r.mask = MaskMode::kNone; }},
      {"alibi_origin_of_another_row", base + "alibi=row_index",
       [](AttentionRequest& r) { r.alibi->origin = AlibiOrigin::kBottomRight; }},
      {"P73_rope_position_off_by_one", base + "rope=half q_positions=offset:3",
       [](AttentionRequest& r) { r.q_positions = IndexArray(positions); }},
      {"P73_rope_pairing", base + "rope=half",
       [](AttentionRequest& r) { r.rope->pairing = RopePairing::kInterleaved; }},
      {"K_and_V_layouts_exchanged", base + "page=2 k_layout=nhd v_layout=hnd",
       [](AttentionRequest& r) { std::swap(V(r).data.stride[1], V(r).data.stride[2]); }},
  };
  return controls;
}

std::string Verdict(const AttentionRequest& request, const Plan& plan) {
  return cli::Judge(oracle::ErrorAgainst(request), plan, cli::ToleranceOf(plan, request.out.dtype));
}

TEST(NegativeControls, EachIsReported) {
  for (const Control& control : Controls()) {
    core::ProblemData data = Build(control.problem);
    const AttentionRequest& right = data.request();
    const Outcome good = RunRequest(data, right, data.plan_options());
    ASSERT_TRUE(good.status.ok()) << control.name << ": " << good.status.message();
    EXPECT_EQ(Verdict(right, good.plan), "") << control.name << " without its fault";
    AttentionRequest wrong = right;
    control.fault(wrong);
    const Outcome bad = RunRequest(data, wrong, data.plan_options());
    ASSERT_TRUE(bad.status.ok()) << control.name << ": " << bad.status.message();
    EXPECT_NE(Verdict(right, bad.plan), "") << control.name << " went unnoticed";
  }
}

TEST(NegativeControls, P57_AnUnwrittenElementIsReported) {
  core::ProblemData data = Build("decode b=2 kv=50 heads=4/2 d=64");
  const AttentionRequest& request = data.request();
  const Outcome good = RunRequest(data, request, data.plan_options());
  ASSERT_TRUE(good.status.ok());
  auto* lse = static_cast<std::uint32_t*>(request.lse.data);
  lse[5] = 0xFFFFFFFFu;  // As poisoned.
  EXPECT_NE(Verdict(request, good.plan), "");
}

TEST(NegativeControls, APoisonedKeyThatIsReadIsReported) {
  core::ProblemData data = Build("decode kv=40 page=16 heads=4/2 d=64 kv_dtype=bf16");
  const AttentionRequest& right = data.request();
  AttentionRequest wrong = right;
  const std::vector<std::int64_t> one_more = {41};
  std::get<PagedKv>(wrong.segments[0].kv).table.kv_len = IndexArray(one_more);
  const Outcome bad = RunRequest(data, wrong, data.plan_options());
  ASSERT_TRUE(bad.status.ok()) << bad.status.message();
  EXPECT_GT(oracle::ErrorAgainst(right).nan_elements, 0);
}

}  // namespace
}  // namespace kvilt
