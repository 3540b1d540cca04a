// The demo's numbers on the real capture.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <filesystem>
#include <numeric>

#include "cli/demo/needle.h"
#include "cli/demo/parts.h"

namespace kvilt::cli::demo {
namespace {

class Demo : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    Result<std::vector<Capture>> loaded = LoadCaptures(KVILT_SOURCE_DATA);
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    captures_ = new std::vector<Capture>(std::move(loaded).value());
  }
  static void TearDownTestSuite() {
    delete captures_;
    captures_ = nullptr;
  }
  static const std::vector<Capture>& captures() { return *captures_; }
  static Device OpenCpu() { return Device::Open("cpu").value(); }
  static void Silent(std::string_view) {}

 private:
  static std::vector<Capture>* captures_;
};
std::vector<Capture>* Demo::captures_ = nullptr;

TEST(CaptureFolder, IsTheCommandsOwnWhateverLiesInDataHere) {
  std::string here = testing::TempDir() + "/kvilt_demo_XXXXXX";
  ASSERT_NE(::mkdtemp(here.data()), nullptr);
  std::filesystem::create_directory(here + "/data");
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(here);
  EXPECT_EQ(CaptureFolder(""), KVILT_SOURCE_DATA);
  EXPECT_EQ(CaptureFolder("data"), "data");
  std::filesystem::current_path(before);
  std::filesystem::remove_all(here);
}

TEST_F(Demo, FormatsCostAndErrAsTheyShould) {
  const auto results = RunFormats(OpenCpu(), captures(), QuickEffort(), Silent);
  ASSERT_TRUE(results.ok()) << results.status().message();
  ASSERT_EQ(results->size(), 5u);
  const FormatResult& bf16 = (*results)[0];
  const FormatResult& fp8 = (*results)[1];
  const FormatResult& nvfp4 = (*results)[2];
  const FormatResult& four_over_six = (*results)[3];
  const FormatResult& segments = (*results)[4];
  // K and V, 3 heads of 64.
  EXPECT_DOUBLE_EQ(bf16.bytes_per_token(), 768);
  EXPECT_DOUBLE_EQ(fp8.bytes_per_token(), 384);
  EXPECT_DOUBLE_EQ(nvfp4.bytes_per_token(), 216);
  EXPECT_DOUBLE_EQ(segments.bytes_per_token(), (64 * 768 + 1984 * 216) / 2048.0);
  for (const FormatResult& result : *results) {
    EXPECT_LE(result.kernel_error, 2.5e-3) << result.name;
    EXPECT_GT(result.kernel_error, 1e-7) << result.name;
    EXPECT_GT(result.us, 0) << result.name;
    EXPECT_EQ(result.health.nan, 0) << result.name;
    // four_over_six may keep a clipped block of amax / 4 where that is the nearer one.
    if (result.name != four_over_six.name) {
      EXPECT_EQ(result.health.saturated, 0) << result.name;
    }
  }
  // The original lost nothing; four bits lose more than eight, and four_over_six a bit less.
  EXPECT_NEAR(bf16.quantization_error, bf16.kernel_error, 1e-6);
  EXPECT_GT(fp8.quantization_error, 3e-3);
  EXPECT_LT(fp8.quantization_error, 0.05);
  EXPECT_GT(nvfp4.quantization_error, fp8.quantization_error);
  EXPECT_LT(nvfp4.quantization_error, 0.2);
  EXPECT_LT(four_over_six.quantization_error, nvfp4.quantization_error);
  EXPECT_LT(segments.quantization_error, nvfp4.quantization_error);
  const double original = Describe(captures(), QuickEffort()).needle_mass;
  EXPECT_NEAR(bf16.needle_mass, original, 3e-3);
  EXPECT_GT(nvfp4.needle_mass, 0.8 * original);
}

TEST_F(Demo, TheOneHotCacheShowsAllTheMassAndTheNeedle) {
  const Format original{"bf16", "", {{-1, DType::kBF16, DType::kBF16}}, false};
  for (const Capture& capture : captures()) {
    const auto view = LookAtNeedle(OpenCpu(), capture, original);
    ASSERT_TRUE(view.ok()) << view.status().message();
    EXPECT_NEAR(std::accumulate(view->bins.begin(), view->bins.end(), 0.0), 1.0, 5e-3);
    EXPECT_NEAR(view->needle, capture.needle.mass, 5e-3);  // Found by the script in float64.
    const auto bin = static_cast<std::size_t>(capture.needle.position / view->bin_tokens);
    EXPECT_GE(view->bins[bin], view->needle - 1e-6);
  }
}

TEST_F(Demo, DecodeAgreesWhateverTheSplit) {
  const auto result = RunDecode(OpenCpu(), captures().front(), QuickEffort(), Silent);
  ASSERT_TRUE(result.ok()) << result.status().message();
  ASSERT_EQ(result->contexts.size(), 3u);
  EXPECT_EQ(result->contexts[2].tokens, 131072);
  for (const ContextResult& context : result->contexts) {
    EXPECT_LE(context.difference, 1e-5);  // SEMANTICS section 4.
    EXPECT_LE(context.error, 2.5e-3);
    EXPECT_GT(context.off_us, 0);
    EXPECT_GE(context.max_splits, 1);
  }
}

TEST_F(Demo, ThePlanOfAMachineWithMoreThreadsCutsTheLongRequest) {
  const auto plans = RunPlans(OpenCpu().spec());
  ASSERT_TRUE(plans.ok()) << plans.status().message();
  const PlanResult& wide = plans->back();
  EXPECT_EQ(wide.threads, 16);
  EXPECT_EQ(wide.lanes.size(), 16u);
  EXPECT_GT(wide.split.max_splits, 4);
  // The drawn items cover each request's keys and heads exactly.
  for (const report::WorkRow& row : wide.rows) {
    std::int64_t area = 0;
    for (const report::WorkRect& item : row.items) {
      area += (item.head_end - item.head_begin) * (item.key_end - item.key_begin);
    }
    EXPECT_EQ(area, row.keys * wide.kv_heads) << row.label;
  }
}

TEST_F(Demo, ForksShareCopyOnceAndChangeNothing) {
  const auto fork = RunFork(OpenCpu(), captures().front());
  ASSERT_TRUE(fork.ok()) << fork.status().message();
  EXPECT_TRUE(fork->prefix_unchanged);
  EXPECT_TRUE(fork->forks_match);
  EXPECT_EQ(fork->prefix_tokens, 2040);
  EXPECT_EQ(fork->pages_copied, 6);
  // 128 pages of the prefix; each fork its copy of the half page and two new ones (8 + 16 + 4).
  EXPECT_EQ(fork->pages_used, 128 + 6 * 3);
  EXPECT_EQ(fork->pages_unshared, 128 + 6 * 130);
  ASSERT_EQ(fork->rows.size(), 7u);
  for (std::size_t i = 1; i < fork->rows.size(); ++i) {
    ASSERT_EQ(fork->rows[i].cells.size(), 6u);
    EXPECT_EQ(fork->rows[i].cells[2].kind, report::PageKind::kShared);
    EXPECT_EQ(fork->rows[i].cells[3].kind, report::PageKind::kCopied);
    EXPECT_EQ(fork->rows[i].cells[4].kind, report::PageKind::kOwn);
    EXPECT_DOUBLE_EQ(fork->rows[i].cells[5].filled, 0.25);
  }
}

}  // namespace
}  // namespace kvilt::cli::demo
