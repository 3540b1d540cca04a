#include "kvilt/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <new>
#include <optional>
#include <string>
#include <system_error>

#include "src/api/device_impl.h"
#include "src/api/no_memory.h"
#include "src/core/host.h"
#include "src/core/log.h"
#include "src/core/simd_target.h"
#include "src/cpu/run_attention.h"
#include "src/plan/device_table.h"
#include "src/plan/paths.h"

namespace kvilt {
namespace {

// Targets joined for a message.
template <class Accepts>
std::string TargetNames(Accepts&& accepts) {
  std::string names;
  for (const SimdTarget target : core::kSimdTargets) {
    if (!accepts(target)) continue;
    if (!names.empty()) names += ", ";
    names += Name(target);
  }
  return names;
}

SimdTarget WidestTarget() {
  SimdTarget widest = SimdTarget::kScalar;
  for (const SimdTarget target : core::kSimdTargets) {
    if (cpu::Supports(target)) widest = target;
  }
  return widest;
}

Result<SimdTarget> ParseTarget(std::string_view name) {
  constexpr std::string_view kPrefix = "cpu:";
  if (name == "cpu") return WidestTarget();
  if (name.starts_with(kPrefix)) {
    if (const auto target = core::ParseSimdTarget(name.substr(kPrefix.size()))) return *target;
  }
  return Status::Invalid(
      "name",
      fmt::format(
          "\"{}\" is not a device; accepted: \"cpu\", or \"cpu:\" and one of {}, or \"cuda:0\" "
          "and so on; to plan for a GPU \"sm_90\" or another arch",
          name, TargetNames([](SimdTarget) { return true; })));
}

// "cuda:0" and so on; "cuda" is the first.
std::optional<int> ParseOrdinal(std::string_view name) {
  constexpr std::string_view kPrefix = "cuda:";
  if (name == "cuda") return 0;
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  int ordinal = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), ordinal);
  if (error != std::errc() || end != name.data() + name.size() || ordinal < 0) return std::nullopt;
  return ordinal;
}

// The planner's numbers for the arch, with the limits that this card says of itself.
Result<DeviceSpec> GpuSpec(const DeviceSpec& card) {
  Result<DeviceSpec> spec = plan::CudaSpecFor(fmt::format("sm_{}:{}", card.arch, card.slots));
  if (!spec.ok()) return spec;
  spec->l2_bytes = card.l2_bytes;
  spec->smem_per_block_bytes = card.smem_per_block_bytes;
  spec->smem_per_sm_bytes = card.smem_per_sm_bytes;
  spec->smem_reserved_bytes = card.smem_reserved_bytes;
  spec->registers_per_sm = card.registers_per_sm;
  spec->threads_per_sm = card.threads_per_sm;
  spec->blocks_per_sm = card.blocks_per_sm;
  if (card.read_gb_per_s > 0) spec->read_gb_per_s = card.read_gb_per_s;
  if (card.clock_ghz > 0) spec->clock_ghz = card.clock_ghz;
  return spec;
}

}  // namespace

Result<DeviceSpec> SpecFor(std::string_view name) {
  if (name.starts_with("sm_")) return plan::CudaSpecFor(name);
  if (const auto ordinal = ParseOrdinal(name)) {
    const auto gpu = cuda::Gpu::Open(*ordinal);
    return gpu.ok() ? GpuSpec((*gpu)->spec()) : gpu.status();
  }
  const Result<SimdTarget> target = ParseTarget(name);
  if (!target.ok()) return target.status();
  return plan::CpuSpec(*target, core::HardwareThreads(), core::L2Bytes());
}

Result<Device> Device::Open(std::string_view name, DeviceOptions options) {
  if (const auto ordinal = ParseOrdinal(name)) {
    if (options.threads != 0) {
      return Status::Invalid(
          "options.threads",
          fmt::format("{}; accepted: 0, a GPU has no worker threads", options.threads));
    }
    std::shared_ptr<Impl> impl;
    const Status opened = api::OrNoMemory("device", "its handle", [&]() -> Status {
      const auto gpu = cuda::Gpu::Open(*ordinal);
      if (!gpu.ok()) return gpu.status();
      const Result<DeviceSpec> spec = GpuSpec((*gpu)->spec());
      if (!spec.ok()) return spec.status();
      impl = std::make_shared<Impl>(*spec, *gpu);
      return {};
    });
    if (!opened.ok()) return opened;
    return Device(std::move(impl));
  }
  const Result<SimdTarget> target = ParseTarget(name);
  if (!target.ok()) return target.status();
  if (!cpu::Supports(*target)) {
    return Status::Unsupported(
        "name", fmt::format("this machine does not have SIMD target {}; it has {}", Name(*target),
                            TargetNames([](SimdTarget t) { return cpu::Supports(t); })));
  }
  if (options.threads < 0 || options.threads > cpu::WorkerPool::kMaxThreads) {
    return Status::Invalid("options.threads",
                           fmt::format("{}; accepted: 1 to {}, or 0 for one per hardware thread",
                                       options.threads, cpu::WorkerPool::kMaxThreads));
  }
  int threads = options.threads;
  if (threads == 0) threads = std::min(core::HardwareThreads(), cpu::WorkerPool::kMaxThreads);
  try {
    auto impl = std::make_shared<Impl>(plan::CpuSpec(*target, threads, core::L2Bytes()));
    if (core::LogEnabled()) {
      core::LogLine(fmt::format("opened {} with {} threads", impl->spec.name, threads));
    }
    return Device(std::move(impl));
  } catch (const std::system_error& error) {
    return Status::Runtime(
        "options.threads",
        fmt::format("the system refused to start {} threads: {}", threads, error.what()));
  } catch (const std::bad_alloc&) {
    return Status::Exhausted("device", "no host memory");
  }
}

const DeviceSpec& Device::spec() const { return impl_->spec; }
DeviceId Device::id() const { return impl_->id; }

}  // namespace kvilt
