// Lines for a person who set KVILT_LOG (env.h). Never on the path of a run.
#pragma once

#include <optional>
#include <string_view>

namespace kvilt::core {

// "off" and "info" are accepted; empty for anything else.
std::optional<bool> ParseLogLevel(std::string_view value);

// Whether lines are wanted. Thread-safe; reads the environment once.
bool LogEnabled();

// "kvilt: <text>" and a newline on stderr, in one piece. Ask LogEnabled before building the text.
void LogLine(std::string_view text);

}  // namespace kvilt::core
