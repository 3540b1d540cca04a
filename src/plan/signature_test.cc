// Each option that a run computes with changes the hash; pointers and values do not.
#include "src/plan/signature.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "src/plan/request_builder.h"

namespace kvilt::plan {
namespace {

TEST(Signature, EachOptionChangesTheHash) {
  RequestBuilder builder(Decode({100, 200}));
  const std::function<void(AttentionRequest&)> changes[] = {
      [](auto&) {},
      [](auto& r) { r.sm_scale = 0.5f; },
      [](auto& r) { r.sm_scale = 0.0f; },
      [](auto& r) { r.q_scale = 2; },
      [](auto& r) { r.logits_soft_cap = 30; },
      [](auto& r) { r.mask = MaskMode::kNone; },
      [](auto& r) { r.window_left = 5; },
      [](auto& r) { r.window_right = 5; },
      [](auto& r) { r.lse_base = LseBase::kTwo; },
      [](auto& r) { r.bias_before_cap = true; },
      [](auto& r) { r.kv_settled = true; },
      [](auto& r) { r.alibi.emplace(); },
      [](auto& r) { r.alibi.emplace().origin = AlibiOrigin::kRowIndex; },
      [](auto& r) { r.rope.emplace(); },
      [](auto& r) { r.rope.emplace().pairing = RopePairing::kInterleaved; },
      [](auto& r) { r.rope.emplace().frequency = RopeFrequency::kProportional; },
      [](auto& r) { r.rope.emplace().theta = 5e5; },
      [](auto& r) { r.rope.emplace().rotary_dim = 64; },
      [](auto& r) { r.rope.emplace().scale = 8; },
      [](auto& r) { r.rope.emplace().llama31.emplace(); },
      [](auto& r) { r.rope.emplace().llama31.emplace().low_freq_factor = 2; },
      [](auto& r) { r.rope.emplace().llama31.emplace().high_freq_factor = 2; },
      [](auto& r) { r.rope.emplace().llama31.emplace().original_length = 4096; },
      [](auto& r) {
        r.segments[0].owners = {0, 1};
      },
      [](auto& r) { std::get<PagedKv>(r.segments[0].kv).k.layout = KvLayout::kHND; },
      [](auto& r) { std::get<PagedKv>(r.segments[0].kv).v.layout = KvLayout::kHND; },
      [](auto& r) {
        std::get<PagedKv>(r.segments[0].kv).v.scale_layout = ScaleLayout::kInterleaved4;
      },
      [](auto& r) { r.segments.push_back(r.segments[0]); },
  };
  std::set<std::uint64_t> hashes;
  for (const auto& change : changes) {
    AttentionRequest request = builder.request;
    change(request);
    EXPECT_TRUE(hashes.insert(OptionsHash(request)).second) << "change " << hashes.size();
  }
}

TEST(Signature, PointersAndGlobalsAreFree) {
  RequestBuilder a(Decode({100, 200}));
  RequestBuilder b(Decode({300, 10}));
  b.Address(1 << 20);
  std::get<PagedKv>(b.request.segments[0].kv).k.global.value = 0.25f;
  EXPECT_EQ(OptionsHash(a.request), OptionsHash(b.request));
}

TEST(Signature, AlignmentIsOfTheBase) {
  RequestBuilder builder(Decode({100}));
  builder.request.q.data = reinterpret_cast<void*>(std::uintptr_t{0x10008});
  builder.request.out.data = reinterpret_cast<void*>(std::uintptr_t{0x20000});
  const std::vector<OperandSignature> signature = MakeSignature(builder.request);
  EXPECT_EQ(signature[0].operand, "q");
  EXPECT_EQ(signature[0].alignment, 8);
  EXPECT_EQ(signature[1].alignment, 16);
  EXPECT_EQ(signature[1].shape, (std::vector<std::int64_t>{1, 32, 128}));
}

}  // namespace
}  // namespace kvilt::plan
