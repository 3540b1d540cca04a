// The kernels that write rows compile for the archs, small and without a warning.
#include "src/contract/append_args.h"
#include "src/contract/merge_params.h"
#include "src/cuda/compiler.h"
#include "src/cuda/nvrtc_fixture.h"

namespace kvilt::cuda {
namespace {

struct Expected {
  KernelSpec spec;
  std::size_t args_bytes;
};

class WritersTest : public NvrtcTest {};

TEST_F(WritersTest, CompileForEachArch) {
  const Expected kernels[] = {
      {{"append", "append.cuh", "", contract::kWriterThreads, 1, false},
       sizeof(contract::AppendArgs)},
      {{"append_slots", "append_slots.cuh", "", contract::kWriterThreads},
       sizeof(contract::AppendSlotsArgs)},
      {{"dequantize", "dequantize.cuh", "", contract::kWriterThreads, 1, false},
       sizeof(contract::DequantizeArgs)},
      {{"copy_rows", "copy_rows.cuh", "", contract::kWriterThreads},
       sizeof(contract::CopyRowsArgs)},
      {{"merge_states", "merge_states.cuh", "", contract::kMergeStatesThreads},
       sizeof(contract::MergeStatesArgs)},
  };
  Compiler::Options options;
  options.sources = KernelSources();
  Compiler compiler(options);
  for (const int arch : {80, 90, 121}) {
    for (const Expected& kernel : kernels) {
      SCOPED_TRACE(kernel.spec.entry + " for " + ArchName(arch));
      Result<Compiled> compiled = compiler.Compile(kernel.spec, arch);
      ASSERT_TRUE(compiled.ok()) << compiled.status().message();
      const Cubin& cubin = *compiled->cubin;
      EXPECT_EQ(static_cast<std::size_t>(cubin.stats.args_bytes), kernel.args_bytes);
      EXPECT_EQ(cubin.stats.smem_bytes, 0);
      EXPECT_EQ(cubin.stats.spill_bytes, 0);
      EXPECT_EQ(cubin.log.find("warning"), std::string::npos) << cubin.log;
      std::printf("%-8s %-12s %5.2f s %3d registers %6zu bytes\n", ArchName(arch).c_str(),
                  kernel.spec.entry.c_str(), cubin.stats.compile_seconds, cubin.stats.registers,
                  cubin.image.size());
    }
  }
}

}  // namespace
}  // namespace kvilt::cuda
