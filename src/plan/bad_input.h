// Test support: one case for each thing that a user can get wrong. The message must name operand,
// field and value, and say what is expected.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

#include "kvilt/attention.h"
#include "src/plan/paths.h"
#include "src/plan/request_builder.h"

namespace kvilt::plan {
inline constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

// Two decode requests over paged NVFP4 with every optional tensor that goes together.
inline RequestOptions Base() {
  RequestOptions options = Decode({40, 100});
  options.segments[0].k = DType::kNVFP4;
  options.segments[0].v = DType::kNVFP4;
  return options;
}

inline PagedKv& Paged(RequestBuilder& b) { return std::get<PagedKv>(b.request.segments[0].kv); }

struct BadInput {
  std::string name;
  std::function<void(RequestBuilder&)> spoil;
  std::string field;  // The whole field.
  std::string text;   // Part of the message: the value found.
  StatusCode code = StatusCode::kInvalidArgument;
};

inline void Expect(const BadInput& bad, const RequestOptions& options = Base(),
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

}  // namespace kvilt::plan
