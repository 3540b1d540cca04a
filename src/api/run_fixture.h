// For tests of Run: one small mixed batch in owned memory, its request, and a plain reference.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "kvilt/attention.h"

namespace kvilt::api::test {

// f32 everywhere; three requests with q lengths 1, 3, 2 over paged keys of 37, 5 and 64 tokens;
// 4 query heads over 2 KV heads, head dim 32, pages of 8. Not movable: the request points into it.
struct RunProblem {
  static constexpr std::int64_t kQHeads = 4;
  static constexpr std::int64_t kKvHeads = 2;
  static constexpr std::int64_t kHeadDim = 32;
  static constexpr std::int64_t kPageSize = 8;
  static constexpr std::int64_t kPages = 20;

  explicit RunProblem(std::vector<std::int64_t> key_counts = {37, 5, 64}) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<float>& values, std::int64_t count) {
      values.resize(static_cast<std::size_t>(count));
      for (float& value : values) value = normal(random);
    };
    const std::int64_t rows = q_indptr.back();
    fill(q, rows * kQHeads * kHeadDim);
    fill(k, kPages * kPageSize * kKvHeads * kHeadDim);
    fill(v, kPages * kPageSize * kKvHeads * kHeadDim);
    out.assign(q.size(), std::numeric_limits<float>::quiet_NaN());
    lse.assign(static_cast<std::size_t>(rows * kQHeads), std::numeric_limits<float>::quiet_NaN());
    request.q = TensorView::Dense(q.data(), DType::kF32, {rows, kQHeads, kHeadDim});
    request.out = TensorView::Dense(out.data(), DType::kF32, {rows, kQHeads, kHeadDim});
    request.lse = TensorView::Dense(lse.data(), DType::kF32, {rows, kQHeads});
    request.q_indptr = std::span<const std::int64_t>(q_indptr);
    request.mask = MaskMode::kCausal;
    request.segments.emplace_back();
    paged().k.data =
        TensorView::Dense(k.data(), DType::kF32, {kPages, kPageSize, kKvHeads, kHeadDim});
    paged().v.data =
        TensorView::Dense(v.data(), DType::kF32, {kPages, kPageSize, kKvHeads, kHeadDim});
    SetLengths(std::move(key_counts));
  }
  RunProblem(const RunProblem&) = delete;
  RunProblem& operator=(const RunProblem&) = delete;

  PagedKv& paged() { return std::get<PagedKv>(request.segments[0].kv); }

  // Pages are handed out from the last one down.
  void SetLengths(std::vector<std::int64_t> key_counts) {
    kv_len = std::move(key_counts);
    indptr.assign(1, 0);
    indices.clear();
    for (const std::int64_t keys : kv_len) {
      for (std::int64_t page = 0; page * kPageSize < keys; ++page) {
        indices.push_back(static_cast<std::int32_t>(kPages - 1) -
                          static_cast<std::int32_t>(indices.size()));
      }
      indptr.push_back(static_cast<std::int64_t>(indices.size()));
    }
    PageTable& table = paged().table;
    table.indptr = std::span<const std::int64_t>(indptr);
    table.indices = std::span<const std::int32_t>(indices);
    table.kv_len = std::span<const std::int64_t>(kv_len);
  }

  const float* Row(const std::vector<float>& cache, std::size_t r, std::int64_t key,
                   std::int64_t head) const {
    const std::int64_t page = indices[static_cast<std::size_t>(indptr[r] + key / kPageSize)];
    return cache.data() + ((page * kPageSize + key % kPageSize) * kKvHeads + head) * kHeadDim;
  }

  // Causal attention in f64.
  std::vector<float> Expected() const {
    std::vector<float> expected(out.size(), 0.0f);
    for (std::size_t r = 0; r < kv_len.size(); ++r) {
      const std::int64_t q_len = q_indptr[r + 1] - q_indptr[r];
      for (std::int64_t i = 0; i < q_len; ++i) {
        for (std::int64_t h = 0; h < kQHeads; ++h) {
          const std::int64_t row = ((q_indptr[r] + i) * kQHeads + h) * kHeadDim;
          AttendRow(r, std::min(kv_len[r], i + kv_len[r] - q_len + 1), h, row, expected);
        }
      }
    }
    return expected;
  }

  double MaxError() const {
    const std::vector<float> expected = Expected();
    double error = 0;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const double difference = std::abs(static_cast<double>(out[i]) - expected[i]);
      if (!(difference <= error)) error = difference;  // NaN sticks.
    }
    return error;
  }

  std::vector<std::int64_t> q_indptr = {0, 1, 4, 6};
  std::vector<std::int64_t> indptr, kv_len;
  std::vector<std::int32_t> indices;
  std::vector<float> q, k, v, out, lse;
  AttentionRequest request;

 private:
  void AttendRow(std::size_t r, std::int64_t keys, std::int64_t head, std::int64_t row,
                 std::vector<float>& expected) const {
    std::vector<double> weights;
    double sum = 0;
    for (std::int64_t j = 0; j < keys; ++j) {
      const float* key = Row(k, r, j, head / (kQHeads / kKvHeads));
      double score = 0;
      for (std::int64_t d = 0; d < kHeadDim; ++d) {
        score += static_cast<double>(q[static_cast<std::size_t>(row + d)]) * key[d];
      }
      weights.push_back(std::exp(score / std::sqrt(static_cast<double>(kHeadDim))));
      sum += weights.back();
    }
    for (std::int64_t d = 0; d < kHeadDim; ++d) {
      double value = 0;
      for (std::int64_t j = 0; j < keys; ++j) {
        value +=
            weights[static_cast<std::size_t>(j)] * Row(v, r, j, head / (kQHeads / kKvHeads))[d];
      }
      if (keys > 0) expected[static_cast<std::size_t>(row + d)] = static_cast<float>(value / sum);
    }
  }
};

inline PlanOptions F32Options() {
  PlanOptions options;
  options.accuracy = Accuracy::kF32;
  return options;
}

}  // namespace kvilt::api::test
