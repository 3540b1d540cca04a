#include "kvilt/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <string>
#include <system_error>

#include "src/api/device_impl.h"
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
  if (name == "cuda" || name.starts_with("cuda:")) {
    return Status::Unsupported(
        "name", fmt::format("\"{}\": this build has no CUDA backend; accepted: \"cpu\", "
                            "\"cpu:<target>\"",
                            name));
  }
  if (name.starts_with(kPrefix)) {
    if (const auto target = core::ParseSimdTarget(name.substr(kPrefix.size()))) return *target;
  }
  return Status::Invalid(
      "name",
      fmt::format("\"{}\" is not a device; accepted: \"cpu\", or \"cpu:\" and one of {}; to "
                  "plan for a GPU \"sm_90\" or another arch",
                  name, TargetNames([](SimdTarget) { return true; })));
}

}  // namespace

Result<DeviceSpec> SpecFor(std::string_view name) {
  if (name.starts_with("sm_")) return plan::CudaSpecFor(name);
  const Result<SimdTarget> target = ParseTarget(name);
  if (!target.ok()) return target.status();
  return plan::CpuSpec(*target, core::HardwareThreads(), core::L2Bytes());
}

Result<Device> Device::Open(std::string_view name, DeviceOptions options) {
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
