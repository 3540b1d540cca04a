// The words `segments=` and `shared=` of the problem grammar.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/core/problem.h"

namespace kvilt::core {

// "64:bf16,rest:nvfp4/e4m3:page=8,16:ragged". Private segments; exactly one is the rest.
// Returns what was expected, or an empty string.
std::string ParsePrivateSegments(std::string_view text, std::vector<SegmentSpec>* segments);
std::string FormatPrivateSegments(const std::vector<SegmentSpec>& segments);

// "512:0-7,64:3+5:bf16": length, owners, then as above.
std::string ParseSharedSegments(std::string_view text, std::vector<SegmentSpec>* segments);
std::string FormatSharedSegments(const std::vector<SegmentSpec>& segments);

}  // namespace kvilt::core
