// The environment variables that Kvilt reads: all of them are here, and so is the only getenv.
//
//   KVILT_LOG   "info": a line on stderr when a device opens, a plan is prepared or updated.
//               "off" or not set: silence. Another value is named once on stderr and means "off".
//   NO_COLOR    not empty: the command prints without bold text.
//   TERM        "dumb": without bold text and without a line of progress.
//
// None of them changes a result, a plan or which code runs. KVILT_LOG is read once per process.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace kvilt::core {

enum class EnvVariable { kLog, kNoColor, kTerm };
std::string_view Name(EnvVariable variable);  // "KVILT_LOG"

// Its value now; empty when it is not set.
std::optional<std::string> ReadEnv(EnvVariable variable);

}  // namespace kvilt::core
