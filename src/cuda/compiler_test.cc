#include "src/cuda/compiler.h"

#include <atomic>
#include <thread>

#include "src/cuda/nvrtc_fixture.h"
#include "src/cuda/temporary_folder_fixture.h"

namespace kvilt::cuda {
namespace {

constexpr std::string_view kScale = R"(
#pragma once
#include "simt.cuh"
#include "tile_shape.h"
namespace kvilt::kernels {
#define KVILT_SMEM_BYTES(...) contract::SmemBytes(__VA_ARGS__)
using namespace kvilt;
struct ScaleArgs { float* x; float by; };
template <contract::TileShape kTile>
void Scale(const ScaleArgs& args) {
  static_assert(kTile.kv_rows == 64 && kTile.stages == 3 && kTile.fused_merge == 1);
  args.x[simt::ThreadIndex()] *= args.by;
}
}  // namespace kvilt::kernels
)";

contract::TileShape SomeTile() {
  contract::TileShape tile;
  tile.k_format = static_cast<contract::i32>(contract::Format::kNVFP4);
  tile.v_format = static_cast<contract::i32>(contract::Format::kE4M3);
  tile.q_rows = 8;
  tile.kv_rows = 64;
  tile.head_dim_qk = tile.head_dim_vo = 128;
  tile.stages = 3;
  tile.fused_merge = 1;
  return tile;
}

KernelSpec ScaleSpec() { return {"scale", "scale.cuh", TileText(SomeTile()), 128, 1}; }

class CompilerTest : public NvrtcTest {
 protected:
  Compiler::Options Options() {
    Compiler::Options options;
    options.cache = CubinCache(folder_.File("cache"), 1 << 24);
    options.sources = sources_;
    return options;
  }

  TemporaryFolder folder_;
  std::vector<SourceText> sources_ = SourcesWith("scale.cuh", kScale);
};

TEST_F(CompilerTest, CompilesOnceThenMemoryThenDisk) {
  Compiler first(Options());
  Result<Compiled> compiled = first.Compile(ScaleSpec(), 90);
  ASSERT_TRUE(compiled.ok()) << compiled.status().message();
  EXPECT_EQ(compiled->origin, CubinOrigin::kCompiled);
  EXPECT_EQ(compiled->cubin->stats.args_bytes, 16);
  EXPECT_EQ(compiled->cubin->stats.smem_bytes, contract::SmemBytes(SomeTile()));
  EXPECT_GT(compiled->cubin->stats.compile_seconds, 0);
  EXPECT_EQ(first.Compile(ScaleSpec(), 90)->origin, CubinOrigin::kMemory);
  EXPECT_EQ(first.Compile(ScaleSpec(), 80)->origin, CubinOrigin::kCompiled);

  Compiler second(Options());
  Result<Compiled> found = second.Compile(ScaleSpec(), 90);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->origin, CubinOrigin::kDisk);
  EXPECT_EQ(*found->cubin, *compiled->cubin);
}

TEST_F(CompilerTest, ChangedSourcesAndDamagedFilesCompileAgain) {
  ASSERT_TRUE(Compiler(Options()).Compile(ScaleSpec(), 90).ok());
  for (const auto& entry : std::filesystem::directory_iterator(folder_.File("cache"))) {
    WriteAll(entry.path(), ReadAll(entry.path()).substr(0, 100));
  }
  EXPECT_EQ(Compiler(Options()).Compile(ScaleSpec(), 90)->origin, CubinOrigin::kCompiled);
  EXPECT_EQ(Compiler(Options()).Compile(ScaleSpec(), 90)->origin, CubinOrigin::kDisk);
  const std::string changed = std::string(kScale) + "// changed\n";
  sources_ = SourcesWith("scale.cuh", changed);
  EXPECT_EQ(Compiler(Options()).Compile(ScaleSpec(), 90)->origin, CubinOrigin::kCompiled);
}

TEST_F(CompilerTest, ABundleNeedsNoCompiler) {
  Compiler warm(Options());
  Result<Compiled> compiled = warm.Compile(ScaleSpec(), 90);
  ASSERT_TRUE(compiled.ok());
  const std::string path = folder_.File("kernels.bundle");
  ASSERT_TRUE(WriteBundle(path, warm.Known()).ok());

  Compiler::Options options = Options();
  options.bundle_path = path;
  options.nvrtc = Result<const Nvrtc*>(Status::Unsupported("nvrtc", "not here"));
  Compiler production(options);
  Result<Compiled> found = production.Compile(ScaleSpec(), 90);
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(found->origin, CubinOrigin::kBundle);
  EXPECT_EQ(*found->cubin, *compiled->cubin);
  EXPECT_EQ(production.Compile(ScaleSpec(), 80).status().message(),
            path + ": has no kvilt_scale for sm_80 of this version of Kvilt, and nvrtc: not here");
}

TEST_F(CompilerTest, TextThatDoesNotCompileSaysWhy) {
  KernelSpec spec = ScaleSpec();
  spec.arguments = "kvilt::contract::TileShape{}";
  Result<Compiled> compiled = Compiler(Options()).Compile(spec, 90);
  ASSERT_FALSE(compiled.ok());
  EXPECT_EQ(compiled.status().code(), StatusCode::kRuntime);
  EXPECT_EQ(compiled.status().field(), "kvilt_scale.cu for sm_90a");
  EXPECT_NE(compiled.status().message().find("static assertion failed"), std::string::npos)
      << compiled.status().message();
  // An arch that this compiler does not know.
  EXPECT_FALSE(Compiler(Options()).Compile(ScaleSpec(), 999).ok());
}

TEST_F(CompilerTest, ThreadsThatAskForOneKernelCompileItOnce) {
  Compiler compiler(Options());
  std::atomic<int> compiled = 0;
  const auto ask = [&] {
    Result<Compiled> found = compiler.Compile(ScaleSpec(), 90);
    if (found.ok() && found->origin == CubinOrigin::kCompiled) ++compiled;
  };
  std::thread other(ask);
  ask();
  other.join();
  EXPECT_EQ(compiled, 1);
}

TEST_F(CompilerTest, WithoutFmaAProductIsRoundedTwice) {
  // The options differ, and so do the instructions.
  constexpr std::string_view kText =
      "namespace kvilt::kernels { struct SumArgs { float* x; };\n"
      "void Sum(const SumArgs& a) { a.x[0] = a.x[1] * a.x[2] + a.x[3]; } }\n";
  sources_ = SourcesWith("sum.cuh", kText);
  KernelSpec spec{"sum", "sum.cuh", "", 32, 1};
  Compiler compiler(Options());
  Result<Compiled> fused = compiler.Compile(spec, 90);
  spec.contract_fma = false;
  Result<Compiled> apart = compiler.Compile(spec, 90);
  ASSERT_TRUE(fused.ok() && apart.ok());
  EXPECT_EQ(fused->cubin->stats.smem_bytes, 0);
  EXPECT_NE(fused->cubin->image, apart->cubin->image);
}

// ---------------------------------------------------------------- without NVRTC

TEST(Nvrtc, WhereItIsMissingTheTextSaysHowToGetIt) {
  const TemporaryFolder folder;
  for (const std::string& place : {folder.path(), folder.File("libnvrtc.so.13")}) {
    const Status status = Nvrtc::FindIn(place).status();
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_NE(status.message().find("in KVILT_NVRTC=" + place), std::string::npos);
    EXPECT_NE(status.message().find("PyPI: nvidia-cuda-nvrtc"), std::string::npos);
    EXPECT_NE(status.message().find("KVILT_BUNDLE"), std::string::npos);
  }
  EXPECT_NE(Nvrtc::FindIn("libm.so.6").status().message().find("has no nvrtcVersion"),
            std::string::npos);
}

TEST(Compiler, ADamagedBundleIsAnErrorAndNotPassedOver) {
  const TemporaryFolder folder;
  Compiler::Options options;
  options.bundle_path = folder.File("kernels.bundle");
  WriteAll(options.bundle_path, "KVILTBN1");
  Compiler compiler(options);
  const Result<Compiled> compiled = compiler.Compile({"x", "simt.cuh", "", 32, 1}, 90);
  EXPECT_NE(compiled.status().message().find("not a bundle"), std::string::npos);
}

}  // namespace
}  // namespace kvilt::cuda
