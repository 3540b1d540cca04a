// The demo's results as a self-contained HTML page.
#pragma once

#include <string>

#include "cli/demo/results.h"

namespace kvilt::cli::demo {

std::string RenderReport(const DemoResults& results);

}  // namespace kvilt::cli::demo
