// Text of unknown origin, made safe to print.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kvilt::core {

inline constexpr std::size_t kPrintableBytes = 120;

// `text` with control bytes as \xNN, so that a file cannot drive the terminal that shows its
// errors; cut behind `limit` bytes, which "..." says. UTF-8 stays as it is.
std::string Printable(std::string_view text, std::size_t limit = kPrintableBytes);

}  // namespace kvilt::core
