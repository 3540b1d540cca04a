#include "src/cuda/gpu.h"

#include <fmt/format.h>

#include <array>
#include <tuple>

#include "src/core/check.h"
#include "src/core/log.h"
#include "src/cuda/gpu_current.h"

namespace kvilt::cuda {
namespace {

constexpr int kLeastArch = 80;  // cp.async

struct OpenGpus {
  std::mutex mutex;
  std::map<int, std::weak_ptr<Gpu>> by_ordinal;
};
OpenGpus& AllOpenGpus() {
  static OpenGpus& gpus = *new OpenGpus;  // Never destroyed: a Gpu may outlive static objects.
  return gpus;
}

}  // namespace

Result<std::shared_ptr<Gpu>> Gpu::Open(int ordinal) {
  Result<const Driver*> driver = LoadDriver();
  if (!driver.ok()) return driver.status();
  OpenGpus& gpus = AllOpenGpus();
  const std::lock_guard lock(gpus.mutex);
  std::weak_ptr<Gpu>& place = gpus.by_ordinal[ordinal];
  if (std::shared_ptr<Gpu> open = place.lock()) return open;
  Result<std::shared_ptr<Gpu>> gpu = OpenWith(**driver, Compiler::Shared(), ordinal);
  if (gpu.ok()) place = *gpu;
  return gpu;
}

Result<std::shared_ptr<Gpu>> Gpu::OpenWith(const Driver& driver, Compiler& compiler, int ordinal) {
  std::shared_ptr<Gpu> gpu(new Gpu(driver, compiler, ordinal));
  KVILT_RETURN_IF_ERROR(gpu->Init());
  return gpu;
}

Gpu::~Gpu() {
  if (context_ == nullptr) return;
  // Errors are ignored: at exit the driver may be gone, and all of it with it.
  if (const Relaxed relaxed(*this); relaxed.status().ok()) {
    for (const auto& [spec, kernel] : kernels_) driver_.ModuleUnload(kernel->module);
  }
  driver_.DevicePrimaryCtxRelease(device_);
}

Status Gpu::Init() {
  int count = 0;
  KVILT_DRIVER_CALL(driver_, DeviceGetCount, &count);
  if (ordinal_ < 0 || ordinal_ >= count) {
    return Status::Unsupported("device", fmt::format("cuda:{} is not here; there {} {}", ordinal_,
                                                     count == 1 ? "is" : "are", count));
  }
  KVILT_DRIVER_CALL(driver_, DeviceGet, &device_, ordinal_);
  std::array<char, 256> name{};
  KVILT_DRIVER_CALL(driver_, DeviceGetName, name.data(), static_cast<int>(name.size()) - 1,
                    device_);
  product_ = name.data();
  KVILT_RETURN_IF_ERROR(ReadSpec());
  if (spec_.arch < kLeastArch) {
    return Status::Unsupported("device", fmt::format("cuda:{} is {} (sm_{}); accepted: sm_{} and "
                                                     "later",
                                                     ordinal_, product_, spec_.arch, kLeastArch));
  }
  KVILT_DRIVER_CALL(driver_, DevicePrimaryCtxRetain, &context_, device_);
  if (core::LogEnabled()) {
    core::LogLine(fmt::format("opened cuda:{}: {}, {}", ordinal_, product_, spec_.name));
  }
  return Status::Ok();
}

Status Gpu::ReadSpec() {
  int major = 0;
  int minor = 0;
  int clock_khz = 0;
  int memory_khz = 0;
  int memory_bits = 0;
  const auto read = [&](auto& value, int attribute) {
    int number = 0;
    const DriverResult result = driver_.DeviceGetAttribute(&number, attribute, device_);
    value = number;
    return DriverStatus(driver_, result, driver_symbol::kDeviceGetAttribute);
  };
  KVILT_RETURN_IF_ERROR(read(major, kAttributeMajor));
  KVILT_RETURN_IF_ERROR(read(minor, kAttributeMinor));
  KVILT_RETURN_IF_ERROR(read(spec_.slots, kAttributeSmCount));
  KVILT_RETURN_IF_ERROR(read(spec_.l2_bytes, kAttributeL2Bytes));
  KVILT_RETURN_IF_ERROR(read(spec_.smem_per_block_bytes, kAttributeSmemPerBlockOptin));
  KVILT_RETURN_IF_ERROR(read(spec_.smem_per_sm_bytes, kAttributeSmemPerSm));
  KVILT_RETURN_IF_ERROR(read(spec_.smem_reserved_bytes, kAttributeSmemReserved));
  KVILT_RETURN_IF_ERROR(read(spec_.registers_per_sm, kAttributeRegistersPerSm));
  KVILT_RETURN_IF_ERROR(read(spec_.threads_per_sm, kAttributeThreadsPerSm));
  KVILT_RETURN_IF_ERROR(read(spec_.blocks_per_sm, kAttributeBlocksPerSm));
  KVILT_RETURN_IF_ERROR(read(clock_khz, kAttributeClockKhz));
  KVILT_RETURN_IF_ERROR(read(memory_khz, kAttributeMemoryClockKhz));
  KVILT_RETURN_IF_ERROR(read(memory_bits, kAttributeMemoryBusBits));
  spec_.kind = DeviceKind::kCuda;
  spec_.arch = major * 10 + minor;
  spec_.name = fmt::format("sm_{}", spec_.arch);
  spec_.clock_ghz = clock_khz * 1e-6;
  spec_.read_gb_per_s = 2.0 * memory_khz * 1e3 * memory_bits / 8 * 1e-9;  // Two transfers a clock.
  return Status::Ok();
}

bool Gpu::SpecOrder::operator()(const KernelSpec& a, const KernelSpec& b) const {
  const auto fields = [](const KernelSpec& s) {
    return std::tie(s.threads, s.min_blocks, s.contract_fma, s.entry, s.arguments, s.header);
  };
  return fields(a) < fields(b);
}

Result<const Kernel*> Gpu::GetKernel(const KernelSpec& spec) {
  {
    const std::lock_guard lock(kernels_mutex_);
    if (const auto at = kernels_.find(spec); at != kernels_.end()) return at->second.get();
  }
  // Not under the lock: compiling takes seconds, and other threads have kernels to launch.
  Result<Compiled> compiled = compiler_.Compile(spec, spec_.arch);
  if (!compiled.ok()) return compiled.status();
  auto kernel = std::make_unique<Kernel>();
  kernel->name = KernelName(spec);
  kernel->stats = compiled->cubin->stats;
  const Relaxed relaxed(*this);
  KVILT_RETURN_IF_ERROR(relaxed.status());
  if (const Status loaded = LoadKernel(*compiled->cubin, *kernel); !loaded.ok()) {
    if (kernel->module != nullptr) driver_.ModuleUnload(kernel->module);
    return loaded;
  }
  const std::lock_guard lock(kernels_mutex_);
  std::unique_ptr<Kernel>& place = kernels_[spec];
  if (place != nullptr) {
    driver_.ModuleUnload(kernel->module);  // Another thread was first.
  } else {
    place = std::move(kernel);
  }
  return place.get();
}

Status Gpu::LoadKernel(const Cubin& cubin, Kernel& kernel) const {
  const auto check = [&](DriverResult result, const char* call) {
    return DriverStatus(driver_, result, call, kernel.name);
  };
  KVILT_RETURN_IF_ERROR(check(driver_.ModuleLoadData(&kernel.module, cubin.image.data()),
                              driver_symbol::kModuleLoadData));
  KVILT_RETURN_IF_ERROR(
      check(driver_.ModuleGetFunction(&kernel.function, kernel.module, kernel.name.c_str()),
            driver_symbol::kModuleGetFunction));
  int static_bytes = 0;
  KVILT_RETURN_IF_ERROR(
      check(driver_.FuncGetAttribute(&static_bytes, kFunctionSharedBytes, kernel.function),
            driver_symbol::kFuncGetAttribute));
  kernel.max_smem_bytes = static_cast<int>(spec_.smem_per_block_bytes) - static_bytes;
  return check(driver_.FuncSetAttribute(kernel.function, kFunctionMaxDynamicSharedBytes,
                                        kernel.max_smem_bytes),
               driver_symbol::kFuncSetAttribute);
}

Status Gpu::Launch(const Kernel& kernel, const LaunchShape& shape, StreamHandle stream,
                   const void* args, std::size_t arg_bytes) const {
  if (static_cast<std::size_t>(kernel.stats.args_bytes) != arg_bytes) {
    return Status::Precondition(kernel.name, fmt::format("its argument has {} bytes, not {}",
                                                         kernel.stats.args_bytes, arg_bytes));
  }
  if (shape.smem_bytes > kernel.max_smem_bytes) {
    return Status::Precondition(
        kernel.name, fmt::format("{} bytes of shared memory; accepted: up to {}", shape.smem_bytes,
                                 kernel.max_smem_bytes));
  }
  if (shape.grid == 0) return Status::Ok();
  LaunchAttribute dependent{};
  dependent.id = kLaunchProgrammaticSerialization;
  dependent.programmatic_stream_serialization = 1;
  LaunchConfig config{};
  config.grid_x = static_cast<unsigned>(shape.grid);
  config.block_x = static_cast<unsigned>(shape.threads);
  config.grid_y = config.grid_z = config.block_y = config.block_z = 1;
  config.shared_bytes = static_cast<unsigned>(shape.smem_bytes);
  config.stream = stream;
  config.attributes = &dependent;
  config.attribute_count = shape.dependent ? 1 : 0;
  void* parameters[] = {const_cast<void*>(args)};
  const Current current(*this);
  KVILT_RETURN_IF_ERROR(current.status());
  return DriverStatus(driver_, driver_.LaunchKernel(&config, kernel.function, parameters, nullptr),
                      driver_symbol::kLaunchKernel, kernel.name);
}

}  // namespace kvilt::cuda
