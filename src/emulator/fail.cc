#include "src/emulator/fail.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace kvilt::emulator {

void Fail(const char* format, ...) {
  std::va_list values;
  va_start(values, format);
  std::fputs("kvilt emulator: ", stderr);
  std::vfprintf(stderr, format, values);
  std::fputc('\n', stderr);
  va_end(values);
  std::abort();
}

}  // namespace kvilt::emulator
