// Which path a request gets, and that every other one is named with its reason.
#include "src/plan/paths.h"

#include <gtest/gtest.h>

#include "kvilt/attention.h"
#include "src/plan/request_builder.h"

namespace kvilt::plan {
namespace {

Plan PlanFor(DType k, DType v, SimdTarget target, const PlanOptions& options = {},
             bool rope = false) {
  RequestOptions request = Decode({100});
  request.segments[0].k = k;
  request.segments[0].v = v;
  RequestBuilder builder(request);
  if (rope) builder.request.rope.emplace();
  return MakePlan(builder.request, CpuSpec(target, 2), options).value();
}

TEST(Paths, IslandTakesWhatBf16HoldsExactly) {
  const DType dtypes[] = {DType::kF32,  DType::kBF16, DType::kF16,
                          DType::kE4M3, DType::kE5M2, DType::kNVFP4};
  for (DType k : dtypes) {
    for (DType v : dtypes) {
      const bool exact =
          k != DType::kF32 && k != DType::kF16 && v != DType::kF32 && v != DType::kF16;
      const Plan plan = PlanFor(k, v, SimdTarget::kAvx512Bf16);
      EXPECT_EQ(plan.path(), exact ? "cpu/avx512_bf16" : "cpu/f32");
      ASSERT_EQ(plan.refused.size(), 1u);
      EXPECT_NE(plan.refused[0].name, plan.path());
      EXPECT_NE(plan.refused[0].reason, "");
    }
  }
}

TEST(Paths, P78_no_pair_of_dtypes_goes_elsewhere_silently) {
  const DType dtypes[] = {DType::kF32,  DType::kBF16, DType::kF16,
                          DType::kE4M3, DType::kE5M2, DType::kNVFP4};
  for (DType k : dtypes) {
    for (DType v : dtypes) {
      for (const SimdTarget target : {SimdTarget::kAvx2, SimdTarget::kAvx512Bf16}) {
        const Plan plan = PlanFor(k, v, target);
        ASSERT_EQ(plan.refused.size(), 1u);
        EXPECT_NE(Describe(plan).find(plan.path()), std::string::npos);
        // The path that was not taken, when it is asked for.
        PlanOptions forced;
        forced.path = plan.refused[0].name;
        RequestOptions request = Decode({100});
        request.segments[0].k = k;
        request.segments[0].v = v;
        RequestBuilder builder(request);
        const Result<Plan> other = MakePlan(builder.request, CpuSpec(target, 2), forced);
        if (other.ok()) {
          EXPECT_EQ(other->path(), forced.path);
          continue;
        }
        EXPECT_EQ(other.status().code(), StatusCode::kUnsupported);
        EXPECT_NE(other.status().message().find(plan.refused[0].reason), std::string::npos)
            << other.status().message();
      }
    }
  }
}

TEST(Paths, EachReasonIsNamed) {
  const auto reason = [](const Plan& plan) {
    EXPECT_EQ(plan.path(), "cpu/f32");
    return plan.refused.at(0).reason;
  };
  EXPECT_EQ(reason(PlanFor(DType::kBF16, DType::kBF16, SimdTarget::kAvx512)),
            "needs SIMD target avx512_bf16, the device has avx512");
  EXPECT_EQ(reason(PlanFor(DType::kBF16, DType::kF16, SimdTarget::kAvx512Bf16)),
            "segments[0].v is f16, which bf16 operands do not hold exactly");
  EXPECT_NE(
      reason(PlanFor(DType::kBF16, DType::kBF16, SimdTarget::kAvx512Bf16, {}, true)).find("rope"),
      std::string::npos);
  PlanOptions f32;
  f32.accuracy = Accuracy::kF32;
  EXPECT_NE(reason(PlanFor(DType::kBF16, DType::kBF16, SimdTarget::kAvx512Bf16, f32))
                .find("accuracy f32"),
            std::string::npos);
  PlanOptions forced;
  forced.path = "cpu/f32";
  EXPECT_EQ(reason(PlanFor(DType::kBF16, DType::kBF16, SimdTarget::kAvx512Bf16, forced)),
            "options.path asks for cpu/f32");
}

TEST(Paths, ATileForTheCpuIsRefused) {
  RequestBuilder builder(Decode({100}));
  PlanOptions options;
  options.tile = "decode 8x32 d128/128 16 warps+4 32 stages";
  const Status status = MakePlan(builder.request, CpuSpec(SimdTarget::kAvx2, 2), options).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_EQ(status.field(), "options.tile");
}

TEST(Paths, P42_TheChoiceIgnoresTheBatch) {
  for (std::int64_t batch : {1, 2, 17, 64}) {
    for (std::int64_t q_len : {1, 4, 300}) {
      RequestBuilder builder(
          Decode(std::vector<std::int64_t>(static_cast<std::size_t>(batch), 3000), q_len));
      const DeviceSpec spec = CpuSpec(SimdTarget::kAvx512Bf16, 2);
      EXPECT_EQ(MakePlan(builder.request, spec).value().path(), "cpu/avx512_bf16");
    }
  }
}

}  // namespace
}  // namespace kvilt::plan
