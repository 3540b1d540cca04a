// Running problem texts through the library, for the conformance tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cli/check_problem.h"
#include "kvilt/attention.h"
#include "src/core/problem.h"
#include "src/core/problem_data.h"

namespace kvilt {

// An opened device, kept for the whole program.
inline const Device& TestDevice(const std::string& name = "cpu", int threads = 2) {
  static std::map<std::pair<std::string, int>, Device> devices;
  const auto key = std::pair(name, threads);
  auto it = devices.find(key);
  if (it == devices.end()) {
    it = devices.emplace(key, Device::Open(name, {threads}).value()).first;
  }
  return it->second;
}

inline core::ProblemData Build(const std::string& text) {
  return core::BuildProblem(core::ParseProblem(text).value()).value();
}

// Passes the whole of `kvilt check`; the message is the reproducer.
inline void ExpectConforms(const std::string& text, std::int64_t max_rows = 0,
                           const Device& device = TestDevice()) {
  const auto problem = core::ParseProblem(text);
  ASSERT_TRUE(problem.ok()) << problem.status().message();
  cli::CheckOptions options;
  options.max_rows = max_rows;
  const cli::CheckResult result = cli::CheckProblem(*problem, device, options);
  EXPECT_TRUE(result.ok()) << "kvilt check '" << result.problem << "'\n  " << result.failure;
}

struct Outcome {
  Status status;
  Plan plan;
  std::vector<std::string> rows;  // Per batch row: the bytes of all heads, out then lse.
  std::vector<double> out;        // All owned rows, when out is f32.
};

inline Outcome RunRequest(core::ProblemData& data, const AttentionRequest& request,
                          const PlanOptions& options, const Device& device = TestDevice()) {
  Outcome outcome;
  outcome.status = cli::RunOn(device, data, request, options, &outcome.plan);
  if (!outcome.status.ok()) return outcome;
  const auto bytes = [](const TensorView& view, std::int64_t r, std::int64_t h,
                        std::int64_t count) {
    const std::int64_t size = StorageBytes(view.dtype);
    return std::string(
        static_cast<const char*>(view.data) + (r * view.stride[0] + h * view.stride[1]) * size,
        static_cast<std::size_t>(count * size));
  };
  for (std::int64_t r = 0; r < request.q_indptr[request.batch()]; ++r) {
    std::string row;
    for (std::int64_t h = 0; h < request.out.shape[1]; ++h) {
      row += bytes(request.out, r, h, request.out.shape[2]);
    }
    if (request.out.dtype == DType::kF32) {
      for (std::size_t i = 0; i < row.size(); i += sizeof(float)) {
        float value = 0;
        std::memcpy(&value, row.data() + i, sizeof value);
        outcome.out.push_back(value);
      }
    }
    for (std::int64_t h = 0; request.lse.defined() && h < request.lse.shape[1]; ++h) {
      row += bytes(request.lse, r, h, 1);
    }
    outcome.rows.push_back(std::move(row));
  }
  return outcome;
}

inline Outcome RunText(const std::string& text, const Device& device = TestDevice()) {
  core::ProblemData data = Build(text);
  Outcome outcome = RunRequest(data, data.request(), data.plan_options(), device);
  EXPECT_TRUE(outcome.status.ok()) << text << "\n" << outcome.status.message();
  return outcome;
}

// ||a - b|| / ||b||
inline double RelativeDifference(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return difference == 0 ? 0 : std::sqrt(difference / norm);
}

}  // namespace kvilt
