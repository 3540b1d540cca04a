#include "src/cuda/compiler.h"

#include <chrono>
#include <utility>

#include "src/core/check.h"
#include "src/core/env.h"
#include "src/core/log.h"

namespace kvilt::cuda {
namespace {

// A cubin of one compiler's version says nothing of another's.
core::Hash128 DiskKey(core::Hash128 key, std::pair<int, int> version) {
  return core::Hasher()
      .Add(key.high)
      .Add(key.low)
      .Add(static_cast<std::uint64_t>(version.first))
      .Add(static_cast<std::uint64_t>(version.second))
      .value();
}

Result<Cubin> CompileNow(const Nvrtc& nvrtc, const KernelSpec& spec, int arch,
                         std::span<const SourceText> headers) {
  const auto start = std::chrono::steady_clock::now();
  const std::string text = KernelText(spec);
  const std::string name = KernelName(spec) + ".cu";
  Result<Nvrtc::Output> output = nvrtc.Compile({name, text}, headers, CompileOptions(spec, arch));
  if (!output.ok()) return output.status();
  const std::string subject = name + " for " + ArchName(arch);
  if (!output->ok) {
    return Status::Runtime(subject, "does not compile (" + nvrtc.path() + "):\n" + output->log);
  }
  Cubin cubin;
  cubin.stats = ParseAssemblerLog(output->log);
  cubin.log = std::move(output->log);
  cubin.image = std::move(output->cubin);
  for (const auto& [symbol, value] : {std::pair{"kvilt_args_bytes", &cubin.stats.args_bytes},
                                      std::pair{"kvilt_smem_bytes", &cubin.stats.smem_bytes}}) {
    Result<std::optional<int>> found = ReadCubinInt(cubin.image, symbol);
    if (!found.ok()) return found.status();
    *value = (*found).value_or(0);
  }
  cubin.stats.compile_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (core::LogEnabled()) {
    core::LogLine("compiled " + subject + " in " + std::to_string(cubin.stats.compile_seconds) +
                  " s, " + std::to_string(cubin.stats.registers) + " registers");
  }
  return cubin;
}

}  // namespace

Compiler& Compiler::Shared() {
  // Never destroyed: a device may outlive static objects.
  static Compiler& compiler = *new Compiler([] {
    Options options;
    options.bundle_path = core::ReadEnv(core::EnvVariable::kBundle).value_or("");
    options.cache = CubinCache::FromEnvironment();
    return options;
  }());
  return compiler;
}

Status Compiler::OpenBundle() {
  const std::lock_guard lock(bundle_mutex_);
  if (!bundle_) {
    bundle_ = options_.bundle_path.empty() ? Bundle() : ReadBundle(options_.bundle_path);
  }
  return bundle_->ok() ? Status::Ok() : bundle_->status();
}

Result<Compiled> Compiler::Compile(const KernelSpec& spec, int arch) {
  KVILT_RETURN_IF_ERROR(OpenBundle());
  Result<std::vector<SourceText>> reachable = ReachableSources(options_.sources, spec.header);
  if (!reachable.ok()) return reachable.status();
  return Find({spec, arch, *reachable, KernelKey(spec, arch, *reachable)});
}

Result<Compiled> Compiler::Find(const Wanted& wanted) {
  std::shared_ptr<Entry> entry;
  {
    const std::lock_guard lock(entries_mutex_);
    std::shared_ptr<Entry>& place = entries_[wanted.key];
    if (place == nullptr) place = std::make_shared<Entry>();
    entry = place;
  }
  const std::lock_guard lock(entry->mutex);
  if (entry->cubin != nullptr) return Compiled{entry->cubin, CubinOrigin::kMemory};
  Result<Compiled> found = FindBesideMemory(wanted);
  if (found.ok()) {
    const std::lock_guard entries_lock(entries_mutex_);  // Known() reads it.
    entry->cubin = found->cubin;
  }
  return found;
}

Result<Compiled> Compiler::FindBesideMemory(const Wanted& wanted) {
  const Bundle& bundle = **bundle_;
  if (const auto at = bundle.find(wanted.key); at != bundle.end()) {
    return Compiled{at->second, CubinOrigin::kBundle};
  }
  const Result<const Nvrtc*> nvrtc = options_.nvrtc ? *options_.nvrtc : Nvrtc::Load();
  if (!nvrtc.ok()) {
    if (options_.bundle_path.empty()) return nvrtc.status();
    return Status::Unsupported(options_.bundle_path, "has no " + KernelName(wanted.spec) + " for " +
                                                         ArchName(wanted.arch) +
                                                         " of this version of Kvilt, and " +
                                                         nvrtc.status().message());
  }
  const core::Hash128 disk_key = DiskKey(wanted.key, (*nvrtc)->version());
  if (std::optional<Cubin> cubin = options_.cache.Find(disk_key)) {
    return Compiled{std::make_shared<const Cubin>(*std::move(cubin)), CubinOrigin::kDisk};
  }
  Result<Cubin> cubin = CompileNow(**nvrtc, wanted.spec, wanted.arch, wanted.reachable);
  if (!cubin.ok()) return cubin.status();
  options_.cache.Store(disk_key, *cubin);
  return Compiled{std::make_shared<const Cubin>(std::move(*cubin)), CubinOrigin::kCompiled};
}

Bundle Compiler::Known() const {
  Bundle known;
  const std::lock_guard lock(entries_mutex_);
  for (const auto& [key, entry] : entries_) {
    if (entry->cubin != nullptr) known[key] = entry->cubin;
  }
  return known;
}

}  // namespace kvilt::cuda
