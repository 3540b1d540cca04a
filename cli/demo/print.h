// The demo's results for a terminal.
#pragma once

#include <string>

#include "cli/demo/results.h"

namespace kvilt::cli::demo {

std::string RenderText(const DemoResults& results);

}  // namespace kvilt::cli::demo
