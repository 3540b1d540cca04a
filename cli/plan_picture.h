// `kvilt plan --svg`: a plan as a picture.
#pragma once

#include <string>
#include <string_view>

#include "kvilt/plan.h"

namespace kvilt::cli {

// An SVG file; `title` is usually the problem's text.
std::string PlanPicture(const Plan& plan, std::string_view title);

}  // namespace kvilt::cli
