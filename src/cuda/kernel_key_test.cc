#include "src/cuda/kernel_key.h"

#include <gtest/gtest.h>

#include <set>

#include "src/cuda/cubin.h"
#include "src/cuda/kernel_sources.h"

namespace kvilt::cuda {
namespace {

const KernelSpec kSpec{"attention", "a.cuh", "kvilt::contract::TileShape{0,1}", 128, 2};

TEST(KernelKey, ChangesWithAllThatDecidesTheCubin) {
  const SourceText sources[] = {{"a.cuh", "int a;"}};
  const SourceText changed[] = {{"a.cuh", "int b;"}};
  std::set<core::Hash128> keys = {KernelKey(kSpec, 90, sources)};
  const auto differs = [&](core::Hash128 key) { return keys.insert(key).second; };
  const auto with = [&](auto change) {
    KernelSpec spec = kSpec;
    change(spec);
    return KernelKey(spec, 90, sources);
  };
  EXPECT_TRUE(differs(KernelKey(kSpec, 100, sources)));
  EXPECT_TRUE(differs(KernelKey(kSpec, 90, changed)));
  EXPECT_TRUE(differs(with([](KernelSpec& s) { s.entry = "merge"; })));
  EXPECT_TRUE(differs(with([](KernelSpec& s) { s.header = "b.cuh"; })));
  EXPECT_TRUE(differs(with([](KernelSpec& s) { s.arguments = ""; })));
  EXPECT_TRUE(differs(with([](KernelSpec& s) { s.threads = 256; })));
  EXPECT_TRUE(differs(with([](KernelSpec& s) { s.min_blocks = 1; })));
  EXPECT_TRUE(differs(with([](KernelSpec& s) { s.contract_fma = false; })));
  EXPECT_EQ(KernelKey(kSpec, 90, sources), *keys.find(KernelKey(kSpec, 90, sources)));
}

TEST(KernelKey, SourcesThatAreNotReachedDoNotMatter) {
  const SourceText sources[] = {{"a.cuh", "#pragma once\n  #  include \"b.h\"\nint a;"},
                                {"b.h", "#include \"c.h\"\n#include \"a.cuh\""},
                                {"c.h", "int c;"},
                                {"d.h", "// #include \"nothing\""}};
  Result<std::vector<SourceText>> reached = ReachableSources(sources, "a.cuh");
  ASSERT_TRUE(reached.ok());
  ASSERT_EQ(reached->size(), 3u);
  EXPECT_EQ((*reached)[1].name, "b.h");
  EXPECT_EQ(ReachableSources(sources, "d.h")->size(), 1u);
  EXPECT_EQ(ReachableSources(sources, "none.h").status().message(),
            "none.h: includes none.h, which is not inside this library");
}

TEST(KernelKey, TheLibraryHoldsItsSources) {
  for (const char* root : {"simt.cuh", "tile_shape.h", "work_item.h", "append_params.h"}) {
    EXPECT_TRUE(ReachableSources(KernelSources(), root).ok()) << root;
  }
}

TEST(KernelKey, TextOfAKernel) {
  EXPECT_EQ(KernelText({"copy_rows", "rows.cuh", "3", 64, 4}),
            "#include \"rows.cuh\"\n"
            "extern \"C\" __global__ void __launch_bounds__(64, 4)\n"
            "kvilt_copy_rows(const __grid_constant__ kvilt::kernels::CopyRowsArgs args) {\n"
            "  kvilt::kernels::CopyRows<3>(args);\n"
            "}\n"
            "namespace kvilt::kernels {\n"
            "extern \"C\" __device__ int kvilt_args_bytes = sizeof(CopyRowsArgs);\n"
            "#ifdef KVILT_SMEM_BYTES\n"
            "extern \"C\" __device__ int kvilt_smem_bytes = KVILT_SMEM_BYTES(3);\n"
            "#endif\n"
            "}\n");
}

TEST(KernelKey, Archs) {
  EXPECT_EQ(ArchName(80), "sm_80");
  EXPECT_EQ(ArchName(89), "sm_89");
  EXPECT_EQ(ArchName(90), "sm_90a");
  EXPECT_EQ(ArchName(121), "sm_121a");
}

TEST(Cubin, ReadsTheAssemblersReport) {
  const CubinStats stats = ParseAssemblerLog(
      "ptxas info    : Function properties for kvilt_x\n"
      "    48 bytes stack frame, 40 bytes spill stores, 60 bytes spill loads\n"
      "ptxas info    : Used 168 registers, used 2 barriers, 48 bytes cumulative stack size\n");
  EXPECT_EQ(stats.registers, 168);
  EXPECT_EQ(stats.stack_bytes, 48);
  EXPECT_EQ(stats.spill_bytes, 100);
  EXPECT_EQ(ParseAssemblerLog(""), CubinStats());
}

TEST(Cubin, WhatIsNoElfIsRefused) {
  const std::vector<std::byte> bytes(200, std::byte{0x7F});
  EXPECT_FALSE(ReadCubinInt(bytes, "x").ok());
  EXPECT_FALSE(ReadCubinInt({}, "x").ok());
}

}  // namespace
}  // namespace kvilt::cuda
