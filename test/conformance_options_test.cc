// P50: an option that is accepted changes the result when its value does, on every path.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "src/core/random.h"
#include "test/conformance_fixture.h"

namespace kvilt {
namespace {

// Sets one option of a request from x in [0, 1); different x give different values.
struct Option {
  std::string name;
  std::string words;  // What the problem needs beside the base.
  std::function<void(AttentionRequest&, double x)> set;
};

template <class F>
void ForSide(AttentionRequest& request, bool k, F f) {
  std::visit([&](auto& kv) { f(k ? kv.k : kv.v); }, request.segments[0].kv);
}

std::int64_t Steps(double x, std::int64_t n) {
  return static_cast<std::int64_t>(x * static_cast<double>(n));
}

const std::vector<Option>& Options() {
  static std::vector<float> vector(64);
  static std::vector<std::int64_t> positions(64);
  static std::vector<std::int64_t> key_positions(200);
  static std::vector<std::uint8_t> bits(4096);
  const auto per_head = [](double x) {
    for (std::size_t h = 0; h < vector.size(); ++h) {
      vector[h] = static_cast<float>(x + 0.05 * static_cast<double>(h));
    }
    return TensorView::Dense(vector.data(), DType::kF32, {8});
  };
  static const std::vector<Option> options = {
      {"sm_scale", "", [](auto& r, double x) { r.sm_scale = static_cast<float>(0.05 + x); }},
      {"q_scale", "", [](auto& r, double x) { r.q_scale = static_cast<float>(0.5 + x); }},
      {"q_scale_of_a_quantized_q", "q_dtype=e4m3",
       [](auto& r, double x) { r.q_scale = static_cast<float>(0.1 + x); }},
      {"logits_soft_cap", "sigma=5.6",
       [](auto& r, double x) { r.logits_soft_cap = static_cast<float>(Steps(x, 20)); }},
      {"window_left", "", [](auto& r, double x) { r.window_left = Steps(x, 100) - 1; }},
      {"window_right", "mask=none", [](auto& r, double x) { r.window_right = Steps(x, 3); }},
      {"q_positions_for_the_window", "window=40 poison=off",
       [](auto& r, double x) {
         for (auto& p : positions) p = 60 + Steps(x, 100);
         r.q_positions = IndexArray(positions);
         r.q_positions.size = r.q.shape[0];
       }},
      {"mask", "poison=off",
       [](auto& r, double x) { r.mask = x < 0.5 ? MaskMode::kNone : MaskMode::kCausal; }},
      {"custom_mask_bits", "mask=custom poison=off",
       [](auto& r, double x) {
         for (std::size_t i = 0; i < bits.size(); ++i) {
           bits[i] = static_cast<std::uint8_t>(core::MixBits(i * 1000 + Steps(x, 500)));
         }
         r.mask_bits.data = bits.data();
       }},
      {"tree_mask_bits", "mask=tree",
       [](auto& r, double x) {
         std::fill(bits.begin(), bits.end(), static_cast<std::uint8_t>(Steps(x, 256)));
         r.mask_bits.data = bits.data();
       }},
      {"alibi_slopes", "",
       [per_head](auto& r, double x) {
         r.alibi = Alibi{per_head(x), AlibiOrigin::kBottomRight};
       }},
      {"alibi_origin", "alibi=row_index cap=3 bias_before_cap",
       [](auto& r, double x) {
         r.alibi->origin = x < 0.5 ? AlibiOrigin::kBottomRight : AlibiOrigin::kRowIndex;
       }},
      {"bias_before_cap", "alibi=bottom_right cap=3",
       [](auto& r, double x) { r.bias_before_cap = x < 0.5; }},
      {"sink", "", [per_head](auto& r, double x) { r.sink = per_head(4 * x); }},
      {"lse_base", "",
       [](auto& r, double x) { r.lse_base = x < 0.5 ? LseBase::kNatural : LseBase::kTwo; }},
      {"k_global", "",
       [](auto& r, double x) {
         ForSide(r, true,
                 [&](CacheSide& side) { side.global.value = static_cast<float>(0.5 + x); });
       }},
      {"v_global", "",
       [](auto& r, double x) {
         ForSide(r, false,
                 [&](CacheSide& side) { side.global.value = static_cast<float>(0.5 + x); });
       }},
      {"v_global_per_head", "",
       [](auto& r, double x) {
         vector[0] = 1;
         vector[1] = static_cast<float>(0.5 + x);
         ForSide(r, false, [&](CacheSide& side) {
           side.global.array = vector.data();
           side.global.array_size = 2;
         });
       }},
      {"scale_layout", "kv_dtype=nvfp4",
       [](auto& r, double x) {
         ForSide(r, false, [&](CacheSide& side) {
           side.scale_layout = x < 0.5 ? ScaleLayout::kLinear : ScaleLayout::kInterleaved4;
           side.scale_row_blocks = x < 0.5 ? 0 : 4;
         });
       }},
      {"rope_pairing", "rope=half",
       [](auto& r, double x) {
         r.rope->pairing = x < 0.5 ? RopePairing::kHalf : RopePairing::kInterleaved;
       }},
      {"rope_frequency", "rope=half rope_dim=16",
       [](auto& r, double x) {
         r.rope->frequency = x < 0.5 ? RopeFrequency::kRotary : RopeFrequency::kProportional;
       }},
      {"rope_theta", "rope=half", [](auto& r, double x) { r.rope->theta = 100 + 10000 * x; }},
      {"rope_rotary_dim", "rope=half",
       [](auto& r, double x) { r.rope->rotary_dim = 2 + 2 * static_cast<int>(Steps(x, 31)); }},
      {"rope_scale", "rope=half", [](auto& r, double x) { r.rope->scale = 0.5 + 4 * x; }},
      {"rope_llama31", "rope=half rope_scale=8",
       [](auto& r, double x) {
         r.rope->llama31 = Rope::Llama31{1, 4, 30 + 200 * x};
       }},
      {"rope_key_positions", "rope=half",
       [](auto& r, double x) {
         for (std::size_t j = 0; j < key_positions.size(); ++j) {
           key_positions[j] = static_cast<std::int64_t>(j) * (1 + Steps(x, 50));
         }
         r.rope->key_positions = IndexArray(key_positions);
       }},
      {"rope_q_positions", "rope=half",
       [](auto& r, double x) {
         for (std::size_t i = 0; i < positions.size(); ++i) {
           positions[i] = static_cast<std::int64_t>(i) + Steps(x, 1000);
         }
         r.q_positions = IndexArray(positions);
         r.q_positions.size = r.q.shape[0];
       }},
  };
  return options;
}

std::vector<std::string> RowsWith(const Option& option, const std::string& path, double x) {
  const std::string text = "verify kv=200 heads=8/2 out=f32 d=64 " + option.words +
                           (path.empty() ? "" : " path=" + path);
  core::ProblemData data = Build(text);
  AttentionRequest request = data.request();
  option.set(request, x);
  const Outcome outcome = RunRequest(data, request, data.plan_options());
  RC_ASSERT(outcome.status.ok());
  return outcome.rows;
}

RC_GTEST_PROP(Options, P50_an_accepted_option_changes_the_result, ()) {
  const Option& option = *rc::gen::elementOf(Options());
  const std::string path = *rc::gen::element<std::string>("", "cpu/f32");
  // Two values that differ for sure: options round x to as few as two steps.
  const double low = *rc::gen::inRange(0, 10) / 100.0, high = *rc::gen::inRange(60, 99) / 100.0;
  RC_LOG() << option.name << " on path " << path << " " << low << " " << high << "\n";
  RC_ASSERT(RowsWith(option, path, low) != RowsWith(option, path, high));
}

// Every option once on every path, whatever the property drew.
TEST(Options, P50_each_on_each_path) {
  for (const Option& option : Options()) {
    for (const char* path : {"", "cpu/f32"}) {
      const auto run = [&](double x) {
        core::ProblemData data = Build("verify kv=200 heads=8/2 out=f32 d=64 " + option.words +
                                       (*path == 0 ? "" : std::string(" path=") + path));
        AttentionRequest request = data.request();
        option.set(request, x);
        const Outcome outcome = RunRequest(data, request, data.plan_options());
        EXPECT_TRUE(outcome.status.ok()) << option.name << " " << outcome.status.message();
        return outcome.rows;
      };
      EXPECT_NE(run(0.1), run(0.9)) << option.name << " on " << path;
    }
  }
}

TEST(Options, P60_no_cap_is_cap_zero_and_large_gains_are_capped) {
  const std::string base = "decode kv=300 heads=4/2 d=64 out=f32 sigma=144 data=iid";
  EXPECT_EQ(RunText(base).rows, RunText(base + " cap=0").rows);
  const std::vector<double> uncapped = RunText(base).out;
  for (const char* cap : {"1", "30", "50"}) {
    ExpectConforms(base + " cap=" + cap);
    const std::vector<double> capped = RunText(base + " cap=" + cap).out;
    double dot = 0, a = 0, b = 0;
    for (std::size_t i = 0; i < capped.size(); ++i) {
      dot += capped[i] * uncapped[i];
      a += capped[i] * capped[i];
      b += uncapped[i] * uncapped[i];
    }
    EXPECT_LT(dot / std::sqrt(a * b), 0.9) << cap;
  }
}

TEST(Options, P62_the_window_holds_on_ragged_caches_too) {
  const std::string base = "decode kv=100 heads=4/2 d=64 out=f32 poison=off cache=";
  for (const char* cache : {"paged", "ragged"}) {
    EXPECT_NE(RunText(base + cache).rows, RunText(base + cache + " window=17").rows);
    ExpectConforms(base + cache + " window=17");
  }
}

TEST(Options, P15_no_global_is_a_global_of_one) {
  for (const char* phase : {"decode kv=333", "prefill q=20 kv=90"}) {
    for (const char* dtype : {"e4m3", "nvfp4", "bf16"}) {
      const std::string base = std::string(phase) + " heads=4/2 d=64 kv_dtype=" + dtype;
      EXPECT_EQ(RunText(base).rows, RunText(base + " global_as=pointer").rows) << base;
    }
  }
}

TEST(Options, P16_globals_as_value_pointer_or_per_head) {
  const std::string base = "decode kv=333 heads=4/2 d=64 kv_dtype=e4m3 global=";
  const auto value = RunText(base + "0.37").rows;
  EXPECT_EQ(RunText(base + "0.37 global_as=pointer").rows, value);
  EXPECT_EQ(RunText(base + "2x0.37").rows, value);
  EXPECT_NE(RunText(base + "0.37,0.5").rows, value);
}

}  // namespace
}  // namespace kvilt
