// For tests: every body that this machine can run, with the accuracy each must reach, and the check
// that most tests make.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "src/cpu/attention_fixture.h"

namespace kvilt::cpu {

struct BodyUnderTest {
  contract::PathId path = contract::PathId::kCpuF32;
  SimdTarget target = SimdTarget::kScalar;
  int accuracy = 0;  // kvilt::Accuracy

  friend std::ostream& operator<<(std::ostream& os, const BodyUnderTest& body) {
    return os << (body.path == contract::PathId::kCpuF32 ? "cpu/f32 on " : "cpu/avx512_bf16 on ")
              << std::string(Name(body.target)) << " accuracy " << body.accuracy;
  }
};

inline std::vector<BodyUnderTest> BodiesUnderTest() {
  std::vector<BodyUnderTest> bodies;
  for (const SimdTarget target : SupportedTargets()) {
    if (target == SimdTarget::kAvx512Bf16) {
      bodies.push_back({contract::PathId::kCpuAvx512Bf16, target, 0});
      bodies.push_back({contract::PathId::kCpuAvx512Bf16, target, 1});
    } else {
      bodies.push_back({contract::PathId::kCpuF32, target, 2});
    }
  }
  return bodies;
}

inline bool Reads(const BodyUnderTest& body, contract::Format format) {
  return body.path == contract::PathId::kCpuF32 ||
         (format != contract::Format::kF32 && format != contract::Format::kF16);
}

inline bool Rotates(const BodyUnderTest& body) { return body.path == contract::PathId::kCpuF32; }

// SEMANTICS section 4, output rounding included.
inline double Tolerance(const BodyUnderTest& body, const AttentionOptions& options) {
  double tolerance = 1e-5;
  if (body.path == contract::PathId::kCpuAvx512Bf16) tolerance = body.accuracy == 0 ? 2.5e-3 : 3e-4;
  if (options.out_format == contract::Format::kBF16) tolerance += 2e-3;
  if (options.out_format == contract::Format::kF16) tolerance += 3e-4;
  return tolerance;
}

inline void ExpectRight(AttentionOptions options, const BodyUnderTest& body, int threads = 1) {
  options.path = body.path;
  options.accuracy = body.accuracy;
  AttentionFixture fixture(options);
  const Status status = fixture.Run(body.target, threads);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_LE(fixture.Error(), Tolerance(body, options)) << body;
  EXPECT_LE(fixture.LseExcess(), 1.0) << body;
}

// Options that most tests start from: three query rows on one segment.
inline AttentionOptions Basic(contract::Format k, contract::Format v, i64 kv = 150) {
  AttentionOptions options;
  options.q_len = {3};
  options.mask = contract::Mask::kCausal;
  options.segments = {OneSegment(k, v, {kv})};
  return options;
}

}  // namespace kvilt::cpu
