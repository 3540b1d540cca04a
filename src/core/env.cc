#include "src/core/env.h"

#include <cstdlib>

namespace kvilt::core {

std::string_view Name(EnvVariable variable) {
  switch (variable) {
    case EnvVariable::kLog:
      return "KVILT_LOG";
    case EnvVariable::kNoColor:
      return "NO_COLOR";
    case EnvVariable::kTerm:
      return "TERM";
    case EnvVariable::kNvrtc:
      return "KVILT_NVRTC";
    case EnvVariable::kBundle:
      return "KVILT_BUNDLE";
    case EnvVariable::kCacheDir:
      return "KVILT_CACHE_DIR";
    case EnvVariable::kXdgCacheHome:
      return "XDG_CACHE_HOME";
    case EnvVariable::kHome:
      return "HOME";
    case EnvVariable::kCacheBytes:
      return "KVILT_CACHE_BYTES";
  }
  return "unknown environment variable";
}

std::optional<std::string> ReadEnv(EnvVariable variable) {
  const char* value = std::getenv(std::string(Name(variable)).c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

}  // namespace kvilt::core
