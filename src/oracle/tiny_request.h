// Requests for the tests of the oracle: numbers written by hand, or a problem by its text.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/core/problem_data.h"
#include "src/oracle/oracle.h"

namespace kvilt::oracle {

// One request, one KV head, f32 everywhere: every number is written by the test.
struct Tiny {
  Tiny(std::vector<std::vector<float>> queries, std::vector<std::vector<float>> keys,
       std::vector<std::vector<float>> values)
      : q(Flat(queries)), k(Flat(keys)), v(Flat(values)) {
    const auto rows = static_cast<std::int64_t>(queries.size());
    const auto tokens = static_cast<std::int64_t>(keys.size());
    const auto qk = static_cast<std::int64_t>(queries[0].size());
    const auto vo = static_cast<std::int64_t>(values.empty() ? 1 : values[0].size());
    out.resize(static_cast<std::size_t>(rows * vo));
    lse.resize(static_cast<std::size_t>(rows));
    indptr = {0, tokens};
    q_indptr = {0, rows};
    RaggedKv ragged;
    k.resize(k.size() + 1);  // Never null, even without keys.
    v.resize(v.size() + 1);
    ragged.k.data = TensorView::Dense(k.data(), DType::kF32, {tokens, 1, qk});
    ragged.v.data = TensorView::Dense(v.data(), DType::kF32, {tokens, 1, vo});
    ragged.indptr = std::span<const std::int64_t>(indptr);
    request.segments.push_back({ragged, {}});
    request.q = TensorView::Dense(q.data(), DType::kF32, {rows, 1, qk});
    request.q_indptr = std::span<const std::int64_t>(q_indptr);
    request.out = TensorView::Dense(out.data(), DType::kF32, {rows, 1, vo});
    request.lse = TensorView::Dense(lse.data(), DType::kF32, {rows, 1});
    request.mask = MaskMode::kNone;
    request.sm_scale = 1.0f;
  }
  Tiny(const Tiny&) = delete;
  static std::vector<float> Flat(const std::vector<std::vector<float>>& rows) {
    std::vector<float> flat;
    for (const auto& row : rows) flat.insert(flat.end(), row.begin(), row.end());
    return flat;
  }
  double Out(std::size_t i = 0) { return Attention(request).out[i]; }
  double Lse(std::size_t i = 0) { return Attention(request).lse[i]; }

  std::vector<float> q, k, v, out, lse;
  std::vector<std::int64_t> indptr, q_indptr;
  AttentionRequest request;
};

inline core::ProblemData Build(const std::string& text) {
  auto problem = core::ParseProblem(text);
  EXPECT_TRUE(problem.ok()) << problem.status().message();
  auto data = core::BuildProblem(*problem);
  EXPECT_TRUE(data.ok()) << text << "\n" << data.status().message();
  return std::move(data).value();
}

}  // namespace kvilt::oracle
