// A bundle: one file of many compiled kernels, so that production needs no compiler. `kvilt warm`
// writes it. "KVILTBN1", the number of records (u64, little-endian), the records.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "kvilt/status.h"
#include "src/core/hash.h"
#include "src/cuda/cubin.h"

namespace kvilt::cuda {

// By KernelKey.
using Bundle = std::map<core::Hash128, std::shared_ptr<const Cubin>>;

// Errors: kRuntime, naming the file (missing, not a bundle, damaged).
Result<Bundle> ReadBundle(const std::string& path);
Status WriteBundle(const std::string& path, const Bundle& bundle);

}  // namespace kvilt::cuda
