#include "src/cuda/gpu.h"

#include <gtest/gtest.h>

#include <thread>

#include "src/cuda/attention.h"
#include "src/cuda/fake_driver_fixture.h"
#include "src/cuda/pinned_ring.h"
#include "src/cuda/temporary_folder_fixture.h"

namespace kvilt::cuda {
namespace {

constexpr SourceText kSources[] = {{"a.cuh", "// nothing"}};
const KernelSpec kSpec{"attention", "a.cuh", "", 128, 1};

struct Args {
  int first = 5;
  int second = 6;
};

// Gpus over the fake driver; the kernel of kSpec comes from a bundle, so nothing is compiled.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    ResetFake();
    Cubin cubin;
    cubin.stats.registers = 40;
    cubin.stats.args_bytes = sizeof(Args);
    cubin.image.resize(64);
    Compiler::Options options;
    options.bundle_path = folder_.File("kernels.bundle");
    options.sources = kSources;
    options.nvrtc = Result<const Nvrtc*>(Status::Unsupported("nvrtc", "not here"));
    const Bundle bundle = {{KernelKey(kSpec, 90, kSources), std::make_shared<const Cubin>(cubin)}};
    ASSERT_TRUE(WriteBundle(options.bundle_path, bundle).ok());
    compiler_ = std::make_unique<Compiler>(options);
  }
  void TearDown() override {
    EXPECT_EQ(FakeContextDepth(), 0);  // Every call leaves the thread as it was.
    EXPECT_EQ(FakeCaptureMode(), 0);
  }

  std::shared_ptr<Gpu> Open() { return Gpu::OpenWith(FakeDriver(), *compiler_, 0).value(); }

  TemporaryFolder folder_;
  std::unique_ptr<Compiler> compiler_;
};

TEST_F(GpuTest, LimitsComeFromTheDriver) {
  const auto gpu = Open();
  const DeviceSpec& spec = gpu->spec();
  EXPECT_EQ(gpu->product(), "Fake H200");
  EXPECT_EQ(spec.name, "sm_90");
  EXPECT_EQ(spec.kind, DeviceKind::kCuda);
  EXPECT_EQ(spec.arch, 90);
  EXPECT_EQ(spec.slots, 132);
  EXPECT_EQ(spec.smem_per_block_bytes, 232448);
  EXPECT_EQ(spec.smem_per_sm_bytes, 233472);
  EXPECT_EQ(spec.smem_reserved_bytes, 1024);
  EXPECT_EQ(spec.registers_per_sm, 65536);
  EXPECT_EQ(spec.threads_per_sm, 2048);
  EXPECT_EQ(spec.blocks_per_sm, 32);
  EXPECT_NEAR(spec.read_gb_per_s, 4917, 1);
  EXPECT_NEAR(spec.clock_ghz, 1.83, 1e-9);
}

TEST_F(GpuTest, WhatCannotBeOpened) {
  EXPECT_EQ(Gpu::OpenWith(FakeDriver(), *compiler_, 1).status().message(),
            "device: cuda:1 is not here; there is 1");
  EXPECT_EQ(Gpu::OpenWith(FakeDriver(), *compiler_, -1).status().code(), StatusCode::kUnsupported);
  Fake().major = 7;
  Fake().minor = 5;
  EXPECT_EQ(Gpu::OpenWith(FakeDriver(), *compiler_, 0).status().message(),
            "device: cuda:0 is Fake H200 (sm_75); accepted: sm_80 and later");
}

TEST_F(GpuTest, AllIsGivenBack) {
  {
    const auto gpu = Open();
    ASSERT_TRUE(gpu->GetKernel(kSpec).ok());
    EXPECT_EQ(Fake().contexts_retained, 1);
    EXPECT_EQ(Fake().modules_loaded, 1);
  }
  EXPECT_EQ(Fake().contexts_retained, 0);
  EXPECT_EQ(Fake().modules_loaded, 0);
}

TEST_F(GpuTest, AKernelIsLoadedOnceByAllThreads) {
  const auto gpu = Open();
  const Kernel* found[4] = {};
  std::vector<std::thread> threads;
  for (const Kernel*& kernel : found) {
    threads.emplace_back([&] { kernel = gpu->GetKernel(kSpec).value(); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Kernel* kernel : found) EXPECT_EQ(kernel, found[0]);
  EXPECT_EQ(Fake().modules_loaded, 1);
  EXPECT_EQ(found[0]->name, "kvilt_attention");
  EXPECT_EQ(found[0]->max_smem_bytes, 232448 - 48);
}

TEST_F(GpuTest, AKernelThatCannotBeLoadedIsTriedAgain) {
  const auto gpu = Open();
  for (const char* call : {"ModuleLoadData", "ModuleGetFunction", "FuncSetAttribute"}) {
    Fake().fails = call;
    const Status status = gpu->GetKernel(kSpec).status();
    EXPECT_EQ(status.code(), StatusCode::kRuntime);
    EXPECT_EQ(status.message(), "cu" + std::string(call) +
                                    "(kvilt_attention): CUDA_ERROR_OUT_OF_MEMORY: the text of the "
                                    "driver");
    EXPECT_EQ(Fake().modules_loaded, 0);
  }
  Fake().fails = nullptr;
  EXPECT_TRUE(gpu->GetKernel(kSpec).ok());
}

TEST_F(GpuTest, LaunchesAsAsked) {
  const auto gpu = Open();
  const Kernel& kernel = *gpu->GetKernel(kSpec).value();
  const Args args;
  auto* stream = reinterpret_cast<StreamHandle>(std::uintptr_t{9});
  ASSERT_TRUE(gpu->Launch(kernel, {264, 128, 99000, false}, stream, &args, sizeof(args)).ok());
  ASSERT_TRUE(gpu->Launch(kernel, {1, 128, 0, true}, nullptr, &args, sizeof(args)).ok());
  ASSERT_TRUE(gpu->Launch(kernel, {0, 128, 0, true}, nullptr, &args, sizeof(args)).ok());
  ASSERT_EQ(Fake().launches.size(), 2u);
  const FakeLaunch& first = Fake().launches[0];
  EXPECT_EQ(first.config.grid_x, 264u);
  EXPECT_EQ(first.config.grid_y * first.config.grid_z, 1u);
  EXPECT_EQ(first.config.block_x, 128u);
  EXPECT_EQ(first.config.block_y * first.config.block_z, 1u);
  EXPECT_EQ(first.config.shared_bytes, 99000u);
  EXPECT_EQ(first.config.stream, stream);
  EXPECT_EQ(first.first_argument, 5);
  EXPECT_FALSE(first.dependent);
  EXPECT_TRUE(Fake().launches[1].dependent);
}

TEST_F(GpuTest, LaunchesThatCannotBeRight) {
  const auto gpu = Open();
  const Kernel& kernel = *gpu->GetKernel(kSpec).value();
  const Args args;
  EXPECT_EQ(gpu->Launch(kernel, {1, 128, 0}, nullptr, &args, 4).message(),
            "kvilt_attention: its argument has 8 bytes, not 4");
  EXPECT_EQ(gpu->Launch(kernel, {1, 128, 232448}, nullptr, &args, sizeof(args)).message(),
            "kvilt_attention: 232448 bytes of shared memory; accepted: up to 232400");
  Fake().fails = "LaunchKernel";
  EXPECT_EQ(gpu->Launch(kernel, {1, 128, 0}, nullptr, &args, sizeof(args)).message(),
            "cuLaunchKernelEx(kvilt_attention): CUDA_ERROR_OUT_OF_MEMORY: the text of the driver");
}

TEST_F(GpuTest, NoMemoryIsSaidAsSuch) {
  const auto gpu = Open();
  Fake().fails = "MemAlloc";
  EXPECT_EQ(gpu->Alloc(1 << 20).status().code(), StatusCode::kResourceExhausted);
  Fake().fails = nullptr;
  const DevicePointer nothing = gpu->Alloc(0).value();
  EXPECT_NE(nothing, 0u);
  gpu->Free(nothing);
  gpu->Free(0);
}

// ---------------------------------------------------------------- PinnedRing

class PinnedRingTest : public GpuTest {
 protected:
  Status Upload(PinnedRing& ring, const std::string& text) {
    to_.resize(text.size());
    const std::span<const std::byte> parts[] = {std::as_bytes(std::span(text).first(1)),
                                                std::as_bytes(std::span(text).subspan(1))};
    return ring.Upload(reinterpret_cast<std::uintptr_t>(to_.data()), parts, nullptr);
  }
  std::string to_;
};

TEST_F(PinnedRingTest, CopiesAllPartsAndAllocatesNothingOnceWarm) {
  PinnedRing ring(Open());
  for (const std::string& text : {std::string("abc"), std::string(4000, 'x'), std::string("d")}) {
    ASSERT_TRUE(Upload(ring, text).ok());
    EXPECT_EQ(to_, text);
  }
  EXPECT_EQ(Fake().pinned_allocated, 1);
  EXPECT_EQ(Fake().events_created, 1);
  ASSERT_TRUE(Upload(ring, std::string(5000, 'y')).ok());  // Grows.
  EXPECT_EQ(Fake().pinned_allocated, 2);
  EXPECT_EQ(Fake().pinned_freed, 1);
  ASSERT_TRUE(Upload(ring, std::string(8000, 'z')).ok());
  EXPECT_EQ(Fake().pinned_allocated, 2);
  EXPECT_EQ(Fake().waits, 0);
}

TEST_F(PinnedRingTest, BuffersInFlightAreLeftAloneAndWaitedForOnlyWhenAllAre) {
  PinnedRing ring(Open(), 3);
  Fake().events_done = false;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Upload(ring, "abc").ok());
  EXPECT_EQ(Fake().pinned_allocated, 3);
  EXPECT_EQ(Fake().waits, 0);
  ASSERT_TRUE(Upload(ring, "abc").ok());
  EXPECT_EQ(Fake().waits, 1);
  EXPECT_EQ(Fake().pinned_allocated, 3);
}

TEST_F(PinnedRingTest, ACapturingStreamIsRefused) {
  PinnedRing ring(Open());
  Fake().capturing = true;
  const Status status = Upload(ring, "abc");
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.field(), "stream");
  EXPECT_EQ(Fake().pinned_allocated, 0);
}

TEST_F(PinnedRingTest, ErrorsLeaveTheRingUsable) {
  for (const char* call :
       {"MemHostAlloc", "EventCreate", "MemcpyHtoDAsync", "EventRecord", "StreamIsCapturing"}) {
    PinnedRing ring(Open(), 1);
    Fake().fails = call;
    EXPECT_FALSE(Upload(ring, "abc").ok()) << call;
    Fake().fails = nullptr;
    EXPECT_TRUE(Upload(ring, "abc").ok()) << call;
  }
}

TEST_F(PinnedRingTest, ManyThreadsShareIt) {
  PinnedRing ring(Open(), 2);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const std::string text(static_cast<std::size_t>(10 + t), static_cast<char>('a' + t));
        std::string to(text.size(), ' ');
        const std::span<const std::byte> parts[] = {std::as_bytes(std::span(text))};
        EXPECT_TRUE(ring.Upload(reinterpret_cast<std::uintptr_t>(to.data()), parts, nullptr).ok());
        EXPECT_EQ(to, text);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(Fake().pinned_allocated, 2);
}

// ---------------------------------------------------------------- TableImages

class TableImagesTest : public GpuTest {
 protected:
  static std::span<const std::byte> Bytes(const std::string& text) {
    return std::as_bytes(std::span(text));
  }
  static StreamHandle StreamAt(std::uintptr_t value) {
    return reinterpret_cast<StreamHandle>(value);  // NOLINT(performance-no-int-to-ptr)
  }
  static TableImages::Image* Use(TableImages& images, const std::string& text, StreamHandle stream,
                                 bool capturing = false) {
    const auto image = images.Get(Bytes(text), {}, stream, capturing);
    if (!image.ok()) return nullptr;
    EXPECT_TRUE(images.Done(**image, stream, capturing).ok());
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(AsPointer((*image)->memory.pointer())),
                          text.size()),
              text);
    return *image;
  }
};

TEST_F(TableImagesTest, AnImageServesTheStreamThatOrdersItsCopy) {
  TableImages images(Open());
  Fake().events_done = false;
  TableImages::Image* const first = Use(images, "tables", StreamAt(8));
  EXPECT_EQ(Use(images, "tables", StreamAt(8)), first);
  EXPECT_NE(Use(images, "tables", StreamAt(16)), first);  // Not ordered behind the copy.
  EXPECT_NE(Use(images, "others", StreamAt(8)), first);   // A run may still read it.
  Fake().events_done = true;
  EXPECT_EQ(Use(images, "others", StreamAt(16))->content.size(), 6u);
}

TEST_F(TableImagesTest, CapturedImagesChangeByRewriteAloneAndKeepTheirLayout) {
  TableImages images(Open());
  EXPECT_EQ(Use(images, "tables", StreamAt(8), true), nullptr);  // Would be copied by each replay.
  TableImages::Image* const image = Use(images, "tables", StreamAt(8));
  EXPECT_FALSE(images.captured());
  EXPECT_EQ(Use(images, "tables", StreamAt(8), true), image);
  EXPECT_TRUE(images.captured());
  EXPECT_NE(Use(images, "others", StreamAt(8)), image);
  ASSERT_TRUE(images.Rewrite(Bytes("newer."), {}, StreamAt(16)).ok());
  EXPECT_EQ(Use(images, "newer.", StreamAt(8)), image);
  const std::size_t moved[] = {3};
  EXPECT_EQ(images.Rewrite(Bytes("moved."), moved, StreamAt(8)).code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(images.Rewrite(Bytes(std::string(4096, 'x')), {}, StreamAt(8)).code(),
            StatusCode::kResourceExhausted);
}

// ---------------------------------------------------------------- the real driver, or none

TEST(Driver, WhereThereIsNoneTheTextSaysSo) {
  const Status missing = OpenDriver("libno_such_driver.so.1").status();
  EXPECT_EQ(missing.code(), StatusCode::kUnsupported);
  EXPECT_EQ(missing.field(), "cuda");
  EXPECT_NE(missing.message().find("no NVIDIA driver here: libno_such_driver.so.1"),
            std::string::npos);
  EXPECT_EQ(OpenDriver("libm.so.6").status().message(),
            "cuda: libm.so.6 has no cuGetErrorName; accepted: drivers of CUDA 12 and later");
}

TEST(Driver, OpeningWorksOrSaysWhy) {
  const Result<std::shared_ptr<Gpu>> gpu = Gpu::Open(0);
  if (!gpu.ok()) {
    EXPECT_EQ(gpu.status().code(), StatusCode::kUnsupported) << gpu.status().message();
    GTEST_SKIP() << "NOT RUN: " << gpu.status().message();
  }
  EXPECT_EQ(*Gpu::Open(0), *gpu);
  Result<DevicePointer> memory = (*gpu)->Alloc(4);
  ASSERT_TRUE(memory.ok()) << memory.status().message();
  EXPECT_TRUE((*gpu)->Describe(reinterpret_cast<void*>(*memory))->on_device);
  EXPECT_FALSE((*gpu)->Describe(&memory)->on_device);
  int value = 0;
  EXPECT_TRUE((*gpu)->Fill(*memory, 1, 4, nullptr).ok());
  EXPECT_TRUE((*gpu)->CopyToHost(&value, *memory, 4, nullptr).ok());
  EXPECT_TRUE((*gpu)->WaitForStream(nullptr).ok());
  EXPECT_EQ(value, 0x01010101);
  (*gpu)->Free(*memory);
}

}  // namespace
}  // namespace kvilt::cuda
