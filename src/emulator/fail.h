// The end of a launch that broke a rule of the machine: the text on stderr, then abort.
#pragma once

namespace kvilt::emulator {

// As std::printf.
[[noreturn]] void Fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace kvilt::emulator
