// src/kernels/simt_ptx.cuh compiles for every arch, each of its functions used.
#include "src/cuda/compiler.h"
#include "src/cuda/nvrtc_fixture.h"

namespace kvilt::cuda {
namespace {

constexpr std::string_view kEveryPrimitive = R"(
#pragma once
#include "simt.cuh"
#include "work_item.h"
#include "formats.h"
#include "scale_layout.h"
#include "append_params.h"
#include "side_address.h"
namespace kvilt::kernels {
using namespace simt;
#define KVILT_SMEM_BYTES(...) 4096
struct EverythingArgs {
  float* floats;
  u32* words;
  u64* counter;
  const u8* bytes;
  i32 count;
};
template <i32 kBarrierThreads>
void Arithmetic(const EverythingArgs& args) {
  const i32 i = ThreadIndex() + BlockIndex() * BlockThreads();
  float x = args.floats[i];
  x = Exp2(x) + Log2(x) + Reciprocal(x) + Ceil(x);
  x = Multiply(x, 3.0f);
  x = Add(x, 1.0f);
  x = Subtract(x, 2.0f);
  x = Divide(x, 7.0f);
  x = Fma(x, x, 1.0f);
  x = MaxFloat(x, contract::MoveFactor(x, 5.0f));
  u32 w = Permute(Bits(x), args.words[i], 0x3210);
  w ^= PackF16(x, 1.0f) ^ PackBF16(x, 2.0f);
  w = MultiplyF16(w, w);
  x += LowF16(w) + HighF16(w);
  if constexpr (kNativeFp8) w ^= F16FromE4M3(w);
  w += ShuffleXor(w, 4) + Shuffle(w, 0);
  x += ShuffleXor(x, 16) + Shuffle(x, LaneIndex());
  if (Any(x > 3.0f)) w ^= Ballot(x > 1.0f);
  BlockSync();
  NamedSync(1, kBarrierThreads);
  WarpSync();
  args.floats[i] = x + static_cast<float>(GridBlocks() + WarpIndex());
  args.words[i] = w;
}
template <i32 kBarrierThreads>
void Everything(const EverythingArgs& args) {
  WaitForPrevious();
  Arithmetic<kBarrierThreads>(args);
  u8* shared = SharedMemory();
  const i32 lane = LaneIndex();
  const bool here = lane < args.count;
  CopyAsync<16>(shared + lane * 16, args.bytes + lane * 16, here);
  CopyAsync<8>(shared + 512 + lane * 8, args.bytes + lane * 8, here);
  CopyAsync<4>(shared + 1024 + lane * 4, args.bytes + lane * 4, here);
  CopyCommit();
  CopyWait<1>();
  CopyWait<0>();
  BlockSync();
  u32 a[4];
  u32 b[4];
  LoadMatrix4(a, shared + lane * 16);
  LoadMatrix4Transposed(b, shared + lane * 16);
  float d[4] = {0, 0, 0, 0};
  MmaF16(d, a, b[0], b[1]);
  MmaBF16(d, a, b[2], MoveMatrixTransposed(b[3]));
  for (i32 k = 0; k < 4; ++k) args.floats[lane * 4 + k] = d[k];
  args.words[lane] = LoadL2(args.words + lane) + Bits(LoadL2(args.floats + lane));
  StoreFirst(args.words + 33, 7);
  AddGlobal(args.counter, 1);
  LetNextStart();
}
}  // namespace kvilt::kernels
)";

using SimtTest = NvrtcTest;

TEST_F(SimtTest, EveryPrimitiveCompilesForEveryArch) {
  const std::vector<SourceText> sources = SourcesWith("everything.cuh", kEveryPrimitive);
  Compiler::Options options;
  options.sources = sources;
  Compiler compiler(options);
  const KernelSpec spec{"everything", "everything.cuh", "128", 128, 1};
  for (const int arch : kTestArchs) {
    SCOPED_TRACE(ArchName(arch));
    Result<Compiled> compiled = compiler.Compile(spec, arch);
    ASSERT_TRUE(compiled.ok()) << compiled.status().message();
    const Cubin& cubin = *compiled->cubin;
    EXPECT_EQ(compiled->origin, CubinOrigin::kCompiled);
    EXPECT_EQ(cubin.stats.smem_bytes, 4096);
    EXPECT_EQ(cubin.stats.args_bytes, 40);
    EXPECT_GT(cubin.stats.registers, 8);
    EXPECT_EQ(cubin.stats.spill_bytes, 0);
    EXPECT_EQ(cubin.log.find("warning"), std::string::npos) << cubin.log;
    std::printf("%-8s %5.2f s %3d registers %6zu bytes\n", ArchName(arch).c_str(),
                cubin.stats.compile_seconds, cubin.stats.registers, cubin.image.size());
  }
}

}  // namespace
}  // namespace kvilt::cuda
