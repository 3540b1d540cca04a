#include "src/plan/device_table.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kvilt::plan {
namespace {

// Compute capabilities: shared memory of an SM and of a block, threads, blocks; as published.
TEST(DeviceTable, P88_LimitsAsPublished) {
  struct Row {
    int arch;
    std::int64_t per_sm, per_block;
    int threads, blocks;
  };
  constexpr Row kRows[] = {
      {80, 167936, 166912, 2048, 32},  {86, 102400, 101376, 1536, 16},
      {87, 167936, 166912, 1536, 16},  {89, 102400, 101376, 1536, 24},
      {90, 233472, 232448, 2048, 32},  {100, 233472, 232448, 2048, 32},
      {103, 233472, 232448, 2048, 32}, {110, 233472, 232448, 1536, 24},
      {120, 102400, 101376, 1536, 24}, {121, 102400, 101376, 1536, 24},
  };
  ASSERT_EQ(std::size(kRows), CudaArchs().size());
  for (const Row& row : kRows) {
    const DeviceSpec spec = CudaSpec(row.arch);
    EXPECT_EQ(spec.arch, row.arch);
    EXPECT_EQ(spec.smem_per_sm_bytes, row.per_sm) << spec.name;
    EXPECT_EQ(spec.smem_per_block_bytes, row.per_block) << spec.name;
    EXPECT_EQ(spec.threads_per_sm, row.threads) << spec.name;
    EXPECT_EQ(spec.blocks_per_sm, row.blocks) << spec.name;
    EXPECT_EQ(spec.registers_per_sm, 65536) << spec.name;
    EXPECT_GT(spec.read_gb_per_s, 0) << spec.name;
  }
}

TEST(DeviceTable, FeaturesArriveAndStayButForWgmma) {
  for (const int arch : CudaArchs()) {
    const CudaFeatures f = CudaSpec(arch).features;
    EXPECT_TRUE(f.async_copy);
    EXPECT_EQ(f.native_e4m3, arch >= 89) << arch;
    EXPECT_EQ(f.bulk_copy, arch >= 90) << arch;
    EXPECT_EQ(f.register_split, arch >= 90) << arch;
    EXPECT_EQ(f.dependent_launch, arch >= 90) << arch;
    EXPECT_EQ(f.wgmma, arch == 90) << arch;
    EXPECT_EQ(f.native_e2m1, arch >= 100) << arch;
  }
}

TEST(DeviceTable, NamesWithAndWithoutSms) {
  EXPECT_EQ(CudaSpecFor("sm_90").value().slots, 132);
  EXPECT_EQ(CudaSpecFor("sm_90:114").value().slots, 114);
  EXPECT_EQ(CudaSpecFor("sm_90:114").value().name, "sm_90:114");
  for (const char* name :
       {"sm_", "sm_x", "sm_90:", "sm_90:0", "sm_90:4097", "sm_90:1x", "90", ""}) {
    EXPECT_EQ(CudaSpecFor(name).status().code(), StatusCode::kInvalidArgument) << name;
  }
  const Status old = CudaSpecFor("sm_75").status();
  EXPECT_EQ(old.code(), StatusCode::kUnsupported);
  EXPECT_NE(old.message().find("cp.async"), std::string::npos) << old.message();
  EXPECT_EQ(CudaSpecFor("sm_95").status().code(), StatusCode::kUnsupported);
}

}  // namespace
}  // namespace kvilt::plan
