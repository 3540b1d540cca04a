// The environment variables that Kvilt reads: all of them are here, and so is the only getenv.
//
//   KVILT_LOG   "info": a line on stderr when a device opens, a plan is prepared or updated.
//               "off" or not set: silence. Another value is named once on stderr and means "off".
//   NO_COLOR    not empty: the command prints without bold text.
//   TERM        "dumb": without bold text and without a line of progress.
//
// Where compiled kernels come from (docs/jit.md); read when the first GPU is opened:
//
//   KVILT_NVRTC        the run-time compiler: libnvrtc.so.* or a folder that has it (a Python
//                      site-packages too). Set: nothing else is searched.
//   KVILT_BUNDLE       a file of kernels compiled ahead of time.
//   KVILT_CACHE_DIR    the folder of kernels compiled before; empty: none is kept.
//   XDG_CACHE_HOME     its subfolder kvilt, when KVILT_CACHE_DIR is not set;
//   HOME               .cache/kvilt in it, when neither is set.
//   KVILT_CACHE_BYTES  what that folder may hold; 0: none is kept. Not set: 268435456.
//
// None of them changes a result, a plan or a path. KVILT_LOG is read once per process.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace kvilt::core {

enum class EnvVariable {
  kLog,
  kNoColor,
  kTerm,
  kNvrtc,
  kBundle,
  kCacheDir,
  kXdgCacheHome,
  kHome,
  kCacheBytes,
};
std::string_view Name(EnvVariable variable);  // "KVILT_LOG"

// Its value now; empty when it is not set.
std::optional<std::string> ReadEnv(EnvVariable variable);

}  // namespace kvilt::core
