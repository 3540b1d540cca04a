// From a KernelSpec to a cubin: bundle, memory, disk, NVRTC, whichever has it first.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "kvilt/status.h"
#include "src/cuda/bundle.h"
#include "src/cuda/cubin.h"
#include "src/cuda/cubin_cache.h"
#include "src/cuda/kernel_key.h"
#include "src/cuda/kernel_sources.h"

namespace kvilt::cuda {

enum class CubinOrigin { kBundle, kMemory, kDisk, kCompiled };

struct Compiled {
  std::shared_ptr<const Cubin> cubin;
  CubinOrigin origin = CubinOrigin::kCompiled;
};

// Thread-safe; two threads that ask for one kernel compile it once.
class Compiler {
 public:
  struct Options {
    std::string bundle_path;  // Empty: none.
    CubinCache cache{"", 0};
    std::span<const SourceText> sources = KernelSources();
    // For tests; not given: Nvrtc::Load().
    std::optional<Result<const Nvrtc*>> nvrtc;
  };
  explicit Compiler(Options options) : options_(std::move(options)) {}

  // This process's compiler, as the environment says (src/core/env.h).
  static Compiler& Shared();

  // `arch`: compute capability times ten. Errors: kUnsupported (no NVRTC and no bundle with the
  // kernel), kRuntime (the bundle is damaged; the text does not compile: the compiler's log).
  Result<Compiled> Compile(const KernelSpec& spec, int arch);

  // What was compiled or found so far, to be written as a bundle.
  Bundle Known() const;

 private:
  struct Entry {
    std::mutex mutex;  // Held while the kernel is looked for.
    std::shared_ptr<const Cubin> cubin;
  };
  struct Wanted {
    const KernelSpec& spec;
    int arch;
    std::span<const SourceText> reachable;
    core::Hash128 key;
  };

  Result<Compiled> Find(const Wanted& wanted);
  Result<Compiled> FindBesideMemory(const Wanted& wanted);
  Status OpenBundle();

  Options options_;
  std::mutex bundle_mutex_;
  std::optional<Result<Bundle>> bundle_;  // Once read, or refused.
  mutable std::mutex entries_mutex_;
  std::map<core::Hash128, std::shared_ptr<Entry>> entries_;
};

}  // namespace kvilt::cuda
