// Kernels compiled before, on disk: one file for each, named by its key.
//
// Files are written aside and renamed into place, and carry a hash: a reader sees a whole file or
// none, and one that was damaged is compiled again. Two processes that compile the same kernel
// write the same file; there are no locks. A folder that cannot be written costs a line in the log.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "src/core/hash.h"
#include "src/cuda/cubin.h"

namespace kvilt::cuda {

class CubinCache {
 public:
  static constexpr std::int64_t kDefaultLimitBytes = 256 << 20;

  // An empty folder or a limit of 0 keeps nothing. The folder is made when something is stored.
  CubinCache(std::string folder, std::int64_t limit_bytes)
      : folder_(std::move(folder)), limit_bytes_(limit_bytes) {}

  // The folder and limit that the environment names (src/core/env.h).
  static CubinCache FromEnvironment();

  // Thread-safe, all of them.
  std::optional<Cubin> Find(core::Hash128 key) const;
  // Afterwards the folder holds at most the limit: the files that were used longest ago go first.
  void Store(core::Hash128 key, const Cubin& cubin) const;

  const std::string& folder() const { return folder_; }
  std::int64_t limit_bytes() const { return limit_bytes_; }

 private:
  bool enabled() const { return !folder_.empty() && limit_bytes_ > 0; }
  std::string PathOf(core::Hash128 key) const;
  void Evict() const;

  std::string folder_;
  std::int64_t limit_bytes_;
};

}  // namespace kvilt::cuda
