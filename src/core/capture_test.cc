// The committed captures: that they load by the schema, and that their needle is where they say.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "src/core/cache_file.h"
#include "src/core/query_file.h"

namespace kvilt::core {
namespace {

double Bf16(const TensorView& view, std::int64_t row, std::int64_t head, std::int64_t i) {
  const std::int64_t at = row * view.stride[0] + head * view.stride[1] + i;
  const std::uint32_t bits = static_cast<const std::uint16_t*>(view.data)[at];
  return std::bit_cast<float>(bits << 16);
}

// q . k after RoPE with pairs (i, i + half), as the capture declares.
double Score(const TensorView& q, std::int64_t row, std::int64_t q_head, double q_position,
             const TensorView& k, std::int64_t key, std::int64_t kv_head, double theta) {
  const std::int64_t half = q.shape[2] / 2;
  double dot = 0;
  for (std::int64_t i = 0; i < half; ++i) {
    const double angle = (q_position - static_cast<double>(key)) *
                         std::pow(theta, -static_cast<double>(i) / static_cast<double>(half));
    const double a = Bf16(q, row, q_head, i), b = Bf16(q, row, q_head, i + half);
    const double c = Bf16(k, key, kv_head, i), d = Bf16(k, key, kv_head, i + half);
    dot += std::cos(angle) * (a * c + b * d) + std::sin(angle) * (a * d - b * c);
  }
  return dot / std::sqrt(static_cast<double>(q.shape[2]));
}

class Capture : public ::testing::TestWithParam<const char*> {};

TEST_P(Capture, LoadsAndHoldsItsNeedle) {
  const std::string path = std::string(KVILT_DATA_FOLDER) + "/" + GetParam();
  Result<CacheFile> loaded = LoadCacheFile(path);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  Result<QueryFile> query = QueryOf(loaded->file);
  ASSERT_TRUE(query.ok()) << query.status().message();
  const AttentionRequest& request = query->request;
  const RaggedKv* cache = loaded->segment.ragged();
  ASSERT_NE(cache, nullptr);
  const std::int64_t kv_len = cache->indptr[1];
  EXPECT_GE(kv_len, 2048);
  EXPECT_EQ(request.q.shape[0], 256);
  EXPECT_EQ(request.q.shape[1] / cache->k.data.shape[1], 3);
  EXPECT_EQ(request.mask, MaskMode::kCausal);
  ASSERT_TRUE(request.rope.has_value());
  EXPECT_EQ(request.rope->pairing, RopePairing::kHalf);
  // The default positions are the recorded ones.
  EXPECT_EQ(request.q_positions[0], kv_len - request.q.shape[0]);

  MetadataReader metadata(loaded->file.metadata());
  std::int64_t row = -1, head = -1, key = -1;
  double mass = 0;
  metadata.Read("needle.query_row", row);
  metadata.Read("needle.q_head", head);
  metadata.Read("needle.position", key);
  metadata.Read("needle.mass", mass);
  ASSERT_TRUE(metadata.status().ok()) << metadata.status().message();
  const std::int64_t position = request.q_positions[row];
  std::vector<double> scores;
  for (std::int64_t j = 0; j <= position; ++j) {
    scores.push_back(Score(request.q, row, head, static_cast<double>(position), cache->k.data, j,
                           head / 3, request.rope->theta));
  }
  const double top = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (const double score : scores) sum += std::exp(score - top);
  EXPECT_NEAR(std::exp(scores[static_cast<std::size_t>(key)] - top) / sum, mass, 1e-5);
  EXPECT_GT(mass, 0.8);
  EXPECT_GE(position - key, 512);
}

INSTANTIATE_TEST_SUITE_P(Data, Capture,
                         ::testing::Values("smollm2_135m_layer07.safetensors",
                                           "smollm2_135m_layer18.safetensors"),
                         [](const auto& test) { return std::string(test.param).substr(13, 7); });

TEST(CaptureSize, AtMostFourMegabytesInAll) {
  std::uintmax_t total = 0;
  for (const auto& entry : std::filesystem::directory_iterator(KVILT_DATA_FOLDER)) {
    if (entry.path().extension() == ".safetensors") total += entry.file_size();
  }
  EXPECT_GT(total, 0u);
  EXPECT_LE(total, 4'000'000u);
}

}  // namespace
}  // namespace kvilt::core
