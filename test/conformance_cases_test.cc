// Rows of CASES.md that concern the whole library, named after them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "src/plan/plan_data.h"
#include "test/conformance_fixture.h"

namespace kvilt {
namespace {

std::string With(const std::string& base, const std::string& name, std::int64_t value) {
  return base + " " + name + "=" + std::to_string(value);
}

// Split and unsplit agree where asymmetric head dims, ragged last pages and odd splits meet.
TEST(Cases, P01_split_equals_unsplit) {
  const std::vector<std::int64_t> pages = {1, 16, 32};
  std::size_t turn = 0;
  for (const char* heads : {"heads=8/1", "heads=16/2"}) {
    for (std::int64_t kv : {600, 1448, 2048}) {
      for (std::int64_t q : {1, 2, 5, 16}) {
        std::string base = std::string("decode d=512/256 kv_dtype=nvfp4 out=f32 ") + heads;
        base = With(With(With(base, "kv", kv), "q", q), "page", pages[turn % 3]);
        base += ++turn % 2 == 0 ? " mask=none" : " mask=causal";
        const Outcome whole = RunText(base + " split=off");
        EXPECT_EQ(whole.plan.split.max_splits, 1);
        for (const char* split : {"auto", "fixed:32", "fixed:64", "fixed:128", "fixed:256",
                                  "fixed:512", "fixed:17", "fixed:100"}) {
          if (turn % 2 == 0 && split != std::string("fixed:17") && split != std::string("auto")) {
            continue;  // Half of the grid with every split, the other half with two.
          }
          const Outcome cut = RunText(base + " split=" + split, TestDevice("cpu", 4));
          // The automatic mode may find 600 keys too few to cut.
          if (kv > 600 || split != std::string("auto")) {
            EXPECT_GT(cut.plan.split.max_splits, 1) << base << " " << split;
          }
          EXPECT_LE(RelativeDifference(cut.out, whole.out), 1e-5) << base << " " << split;
        }
      }
    }
  }
  ExpectConforms("decode d=512/256 kv_dtype=nvfp4 out=f32 heads=16/2 kv=8192 split=fixed:100");
  ExpectConforms("decode d=512/256 kv_dtype=nvfp4 heads=8/1 kv=1448 q=9 split=fixed:17", 3);
}

TEST(Cases, P09_every_head_dim_and_dtype) {
  for (int d : {64, 80, 96, 128, 192, 256, 512}) {
    for (const char* dtype : {"bf16", "f16", "e4m3", "e5m2", "nvfp4", "f32"}) {
      ExpectConforms(With(std::string("prefill q=33 kv=257 heads=8/2 kv_dtype=") + dtype, "d", d),
                     4);
    }
  }
}

TEST(Cases, P26_every_pair_of_dtypes) {
  for (const char* k : {"bf16", "f16", "e4m3", "e5m2", "nvfp4"}) {
    for (const char* v : {"bf16", "f16", "e4m3", "e5m2", "nvfp4"}) {
      ExpectConforms(std::string("verify q=5 kv=333 heads=8/2 k_dtype=") + k + " v_dtype=" + v);
    }
  }
}

TEST(Cases, P28_caches_of_two_dtypes_in_one_batch) {
  ExpectConforms("decode kv=100,700,33 heads=8/2 segments=64:bf16,rest:nvfp4,16:bf16");
  ExpectConforms(
      "decode kv=300,40 heads=8/2 segments=0:f16,100:e4m3:ragged,rest:nvfp4/e5m2:page=3");
}

TEST(Cases, P31_verify_is_causal) {
  for (std::int64_t kv : {37, 1000, 8192}) {
    ExpectConforms(With("verify q=4 heads=8/2 d=64 kv_dtype=nvfp4", "kv", kv));
  }
}

// (P35 and P36 as well: requests without keys, without rows, without both.)
TEST(Cases, P35_empty_requests) {
  ExpectConforms("decode q=1,0,1,1,0,1,1,1 kv=5,0,0,77,0,1,16,0 heads=8/2 d=64");
  ExpectConforms("decode b=3 kv=0 heads=8/2 d=64");
  ExpectConforms("decode b=3 kv=0 heads=8/2 d=64 sink=1 cache=ragged");
  ExpectConforms("prefill q=0,9,0 kv=9,9,0 heads=4/1 d=256");
}

// Outputs, workspace and what lies around them are poisoned before each run.
TEST(Cases, P32_more_workers_than_items) {
  for (std::int64_t b : {1, 2, 3, 33}) {
    for (const char* split : {"auto", "off", "fixed:64"}) {
      ExpectConforms(With(std::string("decode kv=150 heads=16/2 d=64 split=") + split, "b", b), 0,
                     TestDevice("cpu", 7));
    }
  }
}

TEST(Cases, P41_rows_outside_the_batch_may_hold_nan) {
  for (const char* cache : {"paged", "ragged"}) {
    core::ProblemData data =
        Build(std::string("prefill q=21 kv=21 heads=16/1 d=128 q_dtype=f32 out=f32 extra_rows=3 "
                          "cache=") +
              cache);
    const AttentionRequest& request = data.request();
    ASSERT_EQ(request.q.shape[0], 24);
    for (std::int64_t row = 21; row < 24; ++row) {
      for (std::int64_t head = 0; head < 16; ++head) {
        float* q = static_cast<float*>(request.q.data) + row * request.q.stride[0] +
                   head * request.q.stride[1];
        std::fill_n(q, 128, std::numeric_limits<float>::quiet_NaN());
      }
    }
    const Outcome outcome = RunRequest(data, request, data.plan_options());
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
    ASSERT_EQ(outcome.out.size(), 21u * 16 * 128);
    for (const double value : outcome.out) ASSERT_TRUE(std::isfinite(value));
  }
}

TEST(Cases, P39_recycled_pages_before_the_window_may_hold_nan) {
  for (const char* words :
       {"window=40", "q=7 window=3", "q=9 mask=custom", "window=40 page=64",
        "q=5 window=5 cache=ragged", "mask=none window=9/0 q_positions=offset:-60"}) {
    for (const char* dtype : {"nvfp4", "bf16", "e4m3", "f32"}) {
      ExpectConforms(std::string("decode kv=300 heads=4/2 d=64 poison=keys kv_dtype=") + dtype +
                     " " + words);
    }
  }
}

TEST(Cases, P40_q_of_zero_gives_the_mean) {
  for (std::int64_t kv : {1, 2, 15, 16, 17, 255, 256, 257, 1000}) {
    ExpectConforms(With("decode heads=8/8 mask=none sigma=0 kv_dtype=nvfp4", "kv", kv));
  }
}

TEST(Cases, P48_lse_is_by_token_and_head) {
  for (const char* words : {"", "q=3", "cache=ragged", "accuracy=f32", "path=cpu/f32 q=2",
                            "q=5 mask=tree", "lse=two", "segments=100:bf16,rest:nvfp4"}) {
    const std::string text = std::string("decode kv=1000 heads=32/8 d=64 split=fixed:128 ") + words;
    EXPECT_GT(RunText(text).plan.split.max_splits, 1) << words;
    ExpectConforms(text);
  }
}

TEST(Cases, P51_extreme_logits) {
  for (const char* cache : {"paged", "ragged"}) {
    for (std::int64_t kv : {1, 2, 300}) {
      for (const char* lse : {"natural", "two"}) {
        ExpectConforms(With(
            std::string("decode heads=2/1 data=extreme lse=") + lse + " cache=" + cache, "kv", kv));
      }
    }
  }
}

TEST(Cases, P52_causal_with_more_rows_than_keys) {
  const Outcome outcome = RunText("prefill q=48 kv=15 heads=32/32 d=64 out=f32");
  for (std::size_t i = 0; i < 33 * 32 * 64; ++i) ASSERT_EQ(outcome.out[i], 0);
  ExpectConforms("prefill q=48 kv=15 heads=32/32 d=64");
}

TEST(Cases, P54_no_keys_give_minus_infinity) {
  for (const char* words : {"", "cache=ragged", "split=fixed:16", "lse=two", "mask=none"}) {
    core::ProblemData data = Build(std::string("decode kv=0,40,0 heads=4/2 d=32 out=f32 ") + words);
    const AttentionRequest& request = data.request();
    const Outcome outcome = RunRequest(data, request, data.plan_options());
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
    for (std::int64_t row = 0; row < 3; ++row) {
      for (std::int64_t head = 0; head < 4; ++head) {
        const float lse = static_cast<const float*>(
            request.lse.data)[row * request.lse.stride[0] + head * request.lse.stride[1]];
        if (row == 1) {
          EXPECT_TRUE(std::isfinite(lse)) << words;
        } else {
          EXPECT_EQ(lse, -std::numeric_limits<float>::infinity()) << words;
        }
      }
    }
    for (std::size_t i = 0; i < 4 * 32; ++i) EXPECT_EQ(outcome.out[i], 0) << words;
  }
}

// [rows, heads] with any strides, whatever runs; no path pads it or asks for another shape.
TEST(Cases, P59_one_shape_of_lse) {
  for (const char* text :
       {"decode kv=300 b=3", "prefill q=33 kv=90", "decode kv=700 split=fixed:64 q=2",
        "decode kv=60 cache=ragged", "decode kv=40 path=cpu/f32", "decode kv=200 accuracy=f32"}) {
    core::ProblemData data = Build(std::string(text) + " heads=6/2 d=64");
    AttentionRequest request = data.request();
    ASSERT_TRUE(RunRequest(data, request, data.plan_options()).status.ok()) << text;
    const TensorView dense = request.lse;
    const std::int64_t rows = dense.shape[0];
    std::vector<float> memory(static_cast<std::size_t>(rows * 17), -77.0f);
    request.lse = TensorView::Dense(memory.data(), DType::kF32, {rows, 6});
    request.lse.stride[0] = 17;
    request.lse.stride[1] = 2;
    const Result<Plan> plan = MakePlan(request, TestDevice().spec(), data.plan_options());
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const PreparedPlan prepared = Prepare(TestDevice(), *plan).value();
    ASSERT_TRUE(kvilt::Run(prepared, request, data.Workspace(plan->workspace_bytes)).ok()) << text;
    for (std::int64_t at = 0; at < rows * 17; ++at) {
      const std::int64_t row = at / 17, column = at % 17;
      const bool written = column % 2 == 0 && column < 12;
      const float expected =
          written ? static_cast<const float*>(
                        dense.data)[row * dense.stride[0] + column / 2 * dense.stride[1]]
                  : -77.0f;
      ASSERT_EQ(memory[static_cast<std::size_t>(at)], expected) << text << " at " << at;
    }
    request.lse.shape[0] = rows + 7;  // Padded.
    EXPECT_EQ(MakePlan(request, TestDevice().spec(), data.plan_options()).status().field(),
              "lse.shape[0]");
  }
}

TEST(Cases, P66_a_tree_mask_is_a_custom_mask_with_its_prefix) {
  // A tree of ones below the diagonal is causal.
  core::ProblemData data = Build("verify q=6 kv=400 heads=4/2 d=64 mask=tree");
  AttentionRequest request = data.request();
  std::vector<std::uint8_t> bits(5, 0);
  for (int i = 0; i < 6; ++i) {
    for (int c = 0; c <= i; ++c)
      bits[static_cast<std::size_t>((i * 6 + c) / 8)] |=
          static_cast<std::uint8_t>(1 << ((i * 6 + c) % 8));
  }
  request.mask_bits.data = bits.data();
  const Outcome tree = RunRequest(data, request, data.plan_options());
  ASSERT_TRUE(tree.status.ok()) << tree.status.message();
  request.mask = MaskMode::kCausal;
  request.mask_bits = {};
  EXPECT_EQ(RunRequest(data, request, data.plan_options()).rows, tree.rows);
  ExpectConforms("verify q=8 kv=400 heads=4/2 d=64 mask=tree");
}

TEST(Cases, P67_short_last_pages) {
  ExpectConforms("decode kv=1,2 page=2 heads=32/8 d=64 lengths=last_page_len");
  ExpectConforms(
      "decode kv=1,2,3,4,5,31 page=5 heads=8/2 d=64 kv_dtype=nvfp4 lengths=last_page_len");
}

TEST(Cases, P73_rope_at_offsets_and_far_positions) {
  for (std::int64_t offset : {0, 5, 100000}) {
    ExpectConforms("verify q=3 kv=200 heads=4/1 d=512/256 rope=half q_positions=offset:" +
                   std::to_string(offset) + " key_positions=offset:" + std::to_string(offset));
  }
  for (const char* words : {"rope=half", "rope=interleaved rope_dim=64",
                            "rope=half rope_frequency=proportional rope_dim=32",
                            "rope=half rope_scale=8 rope_llama31=1/4/8192 rope_theta=500000"}) {
    ExpectConforms(std::string("decode kv=200 heads=4/1 q_positions=offset:1000000 "
                               "key_positions=random:1000000 ") +
                   words);
  }
}

TEST(Cases, P75_every_head_dim_is_right_or_refused) {
  for (const char* dtype : {"bf16", "f16", "e4m3", "e5m2", "nvfp4", "f32"}) {
    for (int d = 8; d <= 288; d += 8) {
      const std::string text =
          With(std::string("decode q=2 kv=37 heads=2/1 kv_dtype=") + dtype, "d", d);
      if (dtype != std::string("nvfp4") || d % 16 == 0) ExpectConforms(text);
    }
  }
  core::ProblemData data = Build("decode kv=37 heads=2/1 d=64 kv_dtype=bf16");
  for (std::int64_t d = 1; d < 64; ++d) {
    if (d % 8 == 0) continue;
    AttentionRequest request = data.request();
    request.q.shape[2] = d;
    const Status status = MakePlan(request, TestDevice().spec()).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << d;
    EXPECT_EQ(status.field(), "q.shape[2]") << d;
  }
}

TEST(Cases, P77_head_dims_off_the_beaten_track) {
  for (const char* dims : {"56", "88", "320/256", "512/256", "24/512"}) {
    for (const char* dtype : {"bf16", "e4m3"}) {
      ExpectConforms(std::string("prefill q=5 kv=150 heads=4/2 d=") + dims + " kv_dtype=" + dtype);
    }
  }
  core::ProblemData data = Build("decode kv=37 heads=2/1 d=512");
  AttentionRequest request = data.request();
  request.q.shape[2] = 576;
  const Status status = MakePlan(request, TestDevice().spec()).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_NE(status.message().find("head_dim 576"), std::string::npos) << status.message();
}

TEST(Cases, P79_any_integer_group) {
  for (const char* heads :
       {"1/1", "3/1", "5/1", "24/4", "28/4", "40/8", "56/8", "64/4", "64/1", "7/1"}) {
    for (const char* dtype : {"nvfp4", "bf16"}) {
      ExpectConforms(std::string("decode kv=130 d=64 heads=") + heads + " kv_dtype=" + dtype);
    }
  }
  core::ProblemData data = Build("decode kv=130 heads=8/3 d=64");
  const auto plan = MakePlan(data.request(), TestDevice().spec());
  ASSERT_FALSE(plan.ok());
  EXPECT_NE(plan.status().message().find("8"), std::string::npos) << plan.status().message();
}

// What the items of the plan read, key by key and KV head by KV head.
TEST(Cases, P80_each_kv_row_is_read_once_for_any_group) {
  for (const char* heads : {"2/2", "6/2", "12/2", "14/2", "16/2", "128/2"}) {
    for (const char* split : {"auto", "off", "fixed:100"}) {
      const Outcome outcome = RunText(std::string("decode kv=1000,77 d=64 kv_dtype=bf16 heads=") +
                                      heads + " split=" + split);
      EXPECT_EQ(outcome.plan.kv_bytes, 1077 * 2 * (64 + 64) * 2) << heads << " " << split;
      std::int64_t rows = 0;
      for (const contract::WorkItem& item : plan::ViewPlanData(outcome.plan.data).items) {
        rows += (item.key_end - item.key_begin) * item.head_count;
      }
      EXPECT_EQ(rows, 1077 * 2) << heads << " " << split;
    }
  }
}

TEST(Cases, P83_strides_of_interleaved_pools) {
  for (const char* layout : {"hnd", "nhd"}) {
    for (const char* words : {"pool=kv", "pool=kv pad=8/3", "pool=rows", "pool=rows pad=16/1",
                              "pad=0/100", "k_layout=nhd v_layout=hnd pool=kv k_pad=1 v_pad=0/2"}) {
      const std::string base = "decode kv=100,35 heads=4/2 d=64 layout=" + std::string(layout);
      ExpectConforms(base + " kv_dtype=nvfp4 " + words);
      ExpectConforms(base + " k_dtype=bf16 v_dtype=e4m3 " + words);
    }
  }
}

TEST(Cases, P84_unequal_strides_of_k_and_v) {
  for (const char* dims : {"512/256", "256/128", "512"}) {
    for (const char* dtype : {"bf16", "e4m3", "nvfp4"}) {
      for (int page : {1, 16}) {
        for (const char* heads : {"4/2", "8/8"}) {
          ExpectConforms(With(std::string("decode kv=70 k_pad=16/1 v_pad=48/3 d=") + dims +
                                  " kv_dtype=" + dtype + " heads=" + heads,
                              "page", page));
        }
      }
    }
  }
}

TEST(Cases, P89_a_shared_prefix_equals_the_flat_batch) {
  for (std::int64_t prefix : {0, 1, 128, 4096}) {
    for (std::int64_t batch : {1, 8, 128}) {
      if (prefix * batch > 200000) continue;  // The flat batch would take seconds to build.
      const std::string base =
          With(With("decode heads=4/2 d=32 kv_dtype=nvfp4 out=f32", "b", batch), "kv", prefix + 20);
      const std::string owners = batch == 1 ? "0" : "0-" + std::to_string(batch - 1);
      const Outcome flat = RunText(With(base, "prefix", prefix));
      const Outcome shared = RunText(base + " shared=" + std::to_string(prefix) + ":" + owners);
      EXPECT_LE(RelativeDifference(shared.out, flat.out), 1e-5) << prefix << " x " << batch;
      const Outcome apart =
          RunText(base + " cascade=off shared=" + std::to_string(prefix) + ":" + owners);
      EXPECT_LE(RelativeDifference(apart.out, flat.out), 1e-5) << prefix << " x " << batch;
      EXPECT_EQ(apart.plan.split.cascade_items, 0);
      if (prefix >= 4096 && batch >= 8) {
        EXPECT_GT(shared.plan.split.cascade_items, 0) << prefix << " x " << batch;
        EXPECT_LT(shared.plan.kv_bytes, flat.plan.kv_bytes);
      }
    }
  }
  ExpectConforms(
      "decode b=8 kv=400,7x160 heads=4/2 d=64 shared=100:0-7,40:2-5:bf16 kv_dtype=nvfp4");
}

}  // namespace
}  // namespace kvilt
