// From files to files, on the real capture: what `kvilt run` writes, and what it refuses.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/inspect/inspection.h"
#include "cli/run/session.h"

namespace kvilt::cli::run {
namespace {

const std::string kCapture = std::string(KVILT_DATA_FOLDER) + "/smollm2_135m_layer18.safetensors";

class RunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/kvilt_run_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  RunArgs CaptureArgs() const {
    RunArgs args;
    args.caches = {kCapture};
    args.out = Path("out");
    args.out_dtype = "f32";
    args.device.threads = 2;
    return args;
  }

  static Result<RunResult> Execute(const RunArgs& args) {
    Session session(args);
    return session.Execute(OpenDevice(args.device).value());
  }
  static std::string Error(const RunArgs& args) {
    const Result<RunResult> result = Execute(args);
    return result.ok() ? std::string() : result.status().message();
  }

  static std::vector<float> Floats(const std::string& path, const char* name) {
    const core::TensorFile file = core::TensorFile::Load(path).value();
    const TensorView view = file.Find(name);
    std::int64_t elements = 1;
    for (int dim = 0; dim < view.rank; ++dim) elements *= view.shape[dim];
    const auto* values = static_cast<const float*>(view.data);
    return {values, values + elements};
  }

  std::string folder_;
};

double RelativeL2(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    error += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(error / norm);
}

TEST_F(RunTest, TheCaptureRunsByItsOwnOptionsAndAgreesWithTheOracle) {
  RunArgs args = CaptureArgs();
  args.check = true;
  const Result<RunResult> result = Execute(args);
  ASSERT_TRUE(result.ok()) << result.status().message();
  ASSERT_TRUE(result->check.has_value());
  EXPECT_TRUE(result->check->passed()) << result->check->rel_l2;
  EXPECT_GT(result->times.run_us, 0);
  EXPECT_FALSE(result->stored);
  const core::TensorFile out = core::TensorFile::Load(args.out).value();
  EXPECT_EQ(out.Find("out").shape[0], 256);
  EXPECT_EQ(out.Find("out").shape[1], 9);
  EXPECT_EQ(out.Find("lse").rank, 2);
  EXPECT_EQ(out.metadata().at("kvilt.lse_base"), "natural");
  // RoPE comes from the file: without it the result is another.
  const std::vector<float> with = Floats(args.out, "out");
  args.request.no_rope = true;
  ASSERT_EQ(Error(args), "");
  EXPECT_GT(RelativeL2(Floats(args.out, "out"), with), 0.05);
}

TEST_F(RunTest, StoringInOtherFormatsCostsWhatTheFormatCosts) {
  RunArgs args = CaptureArgs();
  ASSERT_TRUE(Execute(args).ok());
  const std::vector<float> exact = Floats(args.out, "out");
  const auto error = [&](auto change) {
    RunArgs changed = CaptureArgs();
    change(changed.store);
    const Result<RunResult> result = Execute(changed);
    EXPECT_TRUE(result.ok()) << result.status().message();
    EXPECT_TRUE(result->stored);
    // four_over_six may keep a candidate that saturates, where that is the smaller error.
    if (!changed.store.four_over_six) {
      EXPECT_EQ(result->k_health, HealthCounters());
    }
    EXPECT_EQ(result->k_health.flushed_blocks, 0);
    return RelativeL2(Floats(changed.out, "out"), exact);
  };
  // bf16 to bf16 is the same data in pages: only the order of sums may change.
  EXPECT_LT(error([](StoreArgs& s) { s.kv_dtype = "bf16"; }), 1e-3);
  const double fp8 = error([](StoreArgs& s) { s.kv_dtype = "e4m3"; });
  const double nvfp4 = error([](StoreArgs& s) { s.kv_dtype = "nvfp4"; });
  const double better = error([](StoreArgs& s) {
    s.kv_dtype = "nvfp4";
    s.four_over_six = true;
  });
  const double k8v4 = error([](StoreArgs& s) {
    s.k_dtype = "e4m3";
    s.v_dtype = "nvfp4";
  });
  EXPECT_LT(fp8, nvfp4 / 2);
  EXPECT_LT(better, nvfp4);
  EXPECT_LT(k8v4, nvfp4);
  EXPECT_GT(k8v4, fp8);
  // The layout of pages and scales is no business of the values.
  EXPECT_NEAR(error([](StoreArgs& s) {
                s.kv_dtype = "nvfp4";
                s.scale_layout = "interleaved4";
                s.layout = "NHD";
                s.page_size = 32;
              }),
              nvfp4, 1e-4);
  EXPECT_NEAR(error([](StoreArgs& s) {
                s.kv_dtype = "nvfp4";
                s.page_size = 0;
              }),
              nvfp4, 1e-4);
}

// P05 on real data: K and V of the capture, each layout, as the writer really writes it.
TEST_F(RunTest, P05_InspectTellsTheScaleOrderOfRealCaches) {
  for (const char* layout : {"linear", "interleaved4"}) {
    RunArgs args = CaptureArgs();
    args.store.kv_dtype = "nvfp4";
    args.store.scale_layout = layout;
    args.store.save_cache = Path("cache");
    ASSERT_EQ(Error(args), "");
    core::TensorFile file = core::TensorFile::Load(Path("cache")).value();
    Inspection inspection = Inspect(file).value();
    EXPECT_TRUE(inspection.problems.empty()) << inspection.problems.front();
    EXPECT_EQ(inspection.cache->sides[0].scale_order.verdict, ScaleOrderVerdict::kLinear);
    EXPECT_EQ(Name(inspection.cache->sides[1].scale_order.verdict), layout);
    EXPECT_EQ(inspection.cache->bytes_per_token, 2 * 3 * 36.0);
    if (std::string_view(layout) == "linear") continue;
    // A reader that takes swizzled scales for linear ones is found out.
    core::Metadata metadata = file.metadata();
    metadata["kvilt.v.scale_layout"] = "linear";
    metadata.erase("kvilt.v.scale_row_blocks");
    ASSERT_TRUE(core::WriteSafetensors(Path("wrong"), file.tensors(), metadata).ok());
    const core::TensorFile wrong = core::TensorFile::Load(Path("wrong")).value();
    EXPECT_EQ(Inspect(wrong)->problems,
              std::vector<std::string>{
                  "v: scales are declared linear but look interleaved4 (by channels)"});
  }
}

TEST_F(RunTest, DenseTensorsAndASavedCacheGiveTheSameBits) {
  RunArgs dense = CaptureArgs();
  dense.caches.clear();
  dense.q = kCapture;
  dense.k = kCapture;  // Finds k.data.
  dense.v = kCapture + ":v.data";
  dense.store.kv_dtype = "nvfp4";
  dense.store.global = "heads";
  dense.store.save_cache = Path("cache");
  dense.plan.split = "256";
  ASSERT_EQ(Error(dense), "");
  RunArgs cached = CaptureArgs();
  cached.q = kCapture;
  cached.caches = {Path("cache")};
  cached.out = Path("out2");
  cached.plan.split = "256";
  ASSERT_EQ(Error(cached), "");
  EXPECT_EQ(Floats(dense.out, "out"), Floats(cached.out, "out"));
  EXPECT_EQ(Floats(dense.out, "lse"), Floats(cached.out, "lse"));
}

TEST_F(RunTest, SeveralCachesAreSegmentsInOrder) {
  // The capture cut in two files.
  const core::CacheFile whole = core::LoadCacheFile(kCapture).value();
  const auto cut = [&](std::int64_t begin, std::int64_t end, const std::string& name) {
    RaggedKv part = *whole.segment.ragged();
    for (CacheSide* side : {&part.k, &part.v}) {
      side->data.data = static_cast<std::byte*>(side->data.data) + begin * side->data.stride[0] * 2;
      side->data.shape[0] = end - begin;
    }
    const std::int64_t indptr[] = {0, end - begin};
    part.indptr = std::span<const std::int64_t>(indptr);
    EXPECT_TRUE(core::SaveCacheFile(Path(name), {part, {}}).ok());
  };
  cut(0, 100, "head");
  cut(100, 2048, "tail");
  RunArgs args = CaptureArgs();
  args.plan.accuracy = "f32";
  ASSERT_EQ(Error(args), "");
  const std::vector<float> exact = Floats(args.out, "out");
  args.q = kCapture;
  args.caches = {Path("head"), Path("tail")};
  ASSERT_EQ(Error(args), "");
  EXPECT_LT(RelativeL2(Floats(args.out, "out"), exact), 2e-5);
  args.caches = {Path("tail"), Path("head")};
  ASSERT_EQ(Error(args), "");
  EXPECT_GT(RelativeL2(Floats(args.out, "out"), exact), 0.05);
}

TEST_F(RunTest, OptionsReplaceWhatTheFileSays) {
  RunArgs args = CaptureArgs();
  ASSERT_EQ(Error(args), "");
  const std::vector<float> base = Floats(args.out, "out");
  const auto changes = [&](auto change) {
    RunArgs changed = CaptureArgs();
    change(changed.request);
    EXPECT_EQ(Error(changed), "");
    return RelativeL2(Floats(changed.out, "out"), base) > 1e-3;
  };
  EXPECT_TRUE(changes([](RequestArgs& r) { r.mask = "none"; }));
  EXPECT_TRUE(changes([](RequestArgs& r) { r.window_left = 100; }));
  EXPECT_TRUE(changes([](RequestArgs& r) { r.sm_scale = 0.01f; }));
  EXPECT_TRUE(changes([](RequestArgs& r) { r.q_scale = 0.5f; }));
  EXPECT_TRUE(changes([](RequestArgs& r) { r.soft_cap = 2.0f; }));
  EXPECT_TRUE(changes([](RequestArgs& r) { r.rope_theta = 10000.0; }));
  EXPECT_TRUE(changes([](RequestArgs& r) { r.rope_pairing = "interleaved"; }));
  EXPECT_TRUE(changes([](RequestArgs& r) { r.rope_dim = 32; }));
  EXPECT_TRUE(changes([](RequestArgs& r) { r.rope_scale = 4.0; }));
  EXPECT_TRUE(changes([](RequestArgs& r) {
    r.rope_dim = 32;
    r.rope_frequency = "proportional";
  }));
}

TEST_F(RunTest, ErrorsNameTheOptionAndWhatIsExpected) {
  const auto error = [&](auto change) {
    RunArgs args = CaptureArgs();
    change(args);
    return Error(args);
  };
  EXPECT_EQ(error([](RunArgs& a) { a.caches.clear(); }),
            "--cache: expected either --cache, once or more, or --k and --v");
  EXPECT_EQ(error([](RunArgs& a) {
              a.caches.clear();
              a.q = a.k = kCapture;
            }),
            "--v: missing: --k and --v go together");
  EXPECT_EQ(error([](RunArgs& a) {
              a.caches.clear();
              a.k = a.v = kCapture;
            }),
            "--q: missing");
  EXPECT_EQ(error([](RunArgs& a) { a.store.given = {"--page-size"}; }).substr(0, 30),
            "--page-size: would do nothing:");
  EXPECT_EQ(error([](RunArgs& a) { a.store.kv_dtype = "int4"; }),
            "--kv-dtype: 'int4', accepted: f32, bf16, f16, e4m3, e5m2, nvfp4");
  EXPECT_EQ(error([](RunArgs& a) {
              a.store.kv_dtype = "e4m3";
              a.store.scale_layout = "interleaved4";
            }),
            "--scale-layout: interleaved4, but V is stored as e4m3");
  EXPECT_EQ(error([](RunArgs& a) {
              a.store.kv_dtype = "nvfp4";
              a.store.global = "max";
            }),
            "--global: 'max', accepted: auto, heads, or a number");
  EXPECT_EQ(error([](RunArgs& a) {
              a.store.kv_dtype = "bf16";
              a.store.global = "2";
            }),
            "--global: '2', but neither bf16 nor bf16 is quantized");
  EXPECT_EQ(error([](RunArgs& a) { a.plan.split = "0"; }),
            "--split: '0', accepted: auto, off, or a number >= 1");
  EXPECT_EQ(error([](RunArgs& a) { a.caches = {"/no/such"}; }),
            "/no/such: cannot open: No such file or directory");
  EXPECT_EQ(error([](RunArgs& a) {
              a.caches.clear();
              a.q = kCapture;
              a.k = kCapture + ":z";
              a.v = kCapture;
            }),
            "--k: no tensor 'z' in " + kCapture + "; name one as FILE:TENSOR");
  EXPECT_NE(error([](RunArgs& a) {
              a.store.kv_dtype = "bf16";
              a.store.page_size = std::int64_t{1} << 38;
            }).find("to spare"),
            std::string::npos);
  EXPECT_NE(error([](RunArgs& a) { a.plan.path = "cpu/none"; }), "");
  EXPECT_NE(error([](RunArgs& a) { a.out = "/no/such/folder/out"; }), "");
  EXPECT_FALSE(std::filesystem::exists(Path("out")));
}

TEST_F(RunTest, OutputsReplaceNoInputNorEachOther) {
  const std::string copy = Path("copy");
  std::filesystem::copy_file(kCapture, copy);
  std::filesystem::create_hard_link(copy, Path("hard"));
  std::filesystem::create_symlink("copy", Path("link"));
  const auto error = [&](auto change) {
    RunArgs args = CaptureArgs();
    args.caches = {copy};
    change(args);
    return Error(args);
  };
  for (const char* out : {"copy", "hard", "link"}) {
    EXPECT_EQ(error([&](RunArgs& a) { a.out = Path(out); }),
              "--out: '" + Path(out) + "' would replace the file of --cache, expected another");
  }
  EXPECT_NE(error([&](RunArgs& a) {
              a.caches.clear();
              a.q = a.v = kCapture;
              a.k = copy + ":k.data";
              a.out = copy;
            }).find("would replace the file of --k"),
            std::string::npos);
  EXPECT_NE(error([&](RunArgs& a) {
              a.store.kv_dtype = "e4m3";
              a.store.save_cache = copy;
            }).find("--save-cache: '" + copy + "' would replace the file of --cache"),
            std::string::npos);
  EXPECT_NE(error([&](RunArgs& a) {
              a.store.kv_dtype = "e4m3";
              a.store.save_cache = a.out;
            }).find("would replace the file of --out"),
            std::string::npos);
  EXPECT_EQ(std::filesystem::file_size(copy), std::filesystem::file_size(kCapture));
}

TEST_F(RunTest, AnOutputThatCannotBeWrittenIsFoundBeforeTheWork) {
  RunArgs args = CaptureArgs();
  args.caches = {"/no/such/cache"};
  args.out = Path("no/such/folder/out");
  EXPECT_NE(Error(args).find("no such folder"), std::string::npos) << Error(args);
}

TEST_F(RunTest, JsonHasTimesPlanHealthAndCheck) {
  RunArgs args = CaptureArgs();
  args.store.v_dtype = "nvfp4";
  args.check = true;
  const RunResult result = Execute(args).value();
  const auto json = nlohmann::json::parse(ToJson(args, result));
  EXPECT_GT(json["times_us"]["append"], 0.0);
  EXPECT_EQ(json["health"]["v"]["nan"], 0);
  EXPECT_TRUE(json["check"]["passed"]);
  EXPECT_TRUE(json["plan"].contains("path"));
  EXPECT_NE(ToText(args, result).find("Where the time went"), std::string::npos);
}

}  // namespace
}  // namespace kvilt::cli::run
