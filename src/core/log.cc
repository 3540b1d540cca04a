#include "src/core/log.h"

#include <cstdio>

#include "src/core/env.h"

namespace kvilt::core {
namespace {

bool ReadLevel() {
  const std::optional<std::string> value = ReadEnv(EnvVariable::kLog);
  if (!value) return false;
  const std::optional<bool> level = ParseLogLevel(*value);
  if (!level) LogLine("KVILT_LOG is \"" + *value + "\"; accepted: off, info");
  return level.value_or(false);
}

}  // namespace

std::optional<bool> ParseLogLevel(std::string_view value) {
  if (value == "info") return true;
  if (value == "off" || value.empty()) return false;
  return std::nullopt;
}

bool LogEnabled() {
  static const bool enabled = ReadLevel();
  return enabled;
}

void LogLine(std::string_view text) {
  std::fprintf(stderr, "kvilt: %.*s\n", static_cast<int>(text.size()), text.data());
}

}  // namespace kvilt::core
