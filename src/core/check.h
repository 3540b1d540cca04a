// A broken internal invariant aborts with text. Never for a user's mistake: that is a Status.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace kvilt::core {

[[noreturn]] inline void CheckFailed(const char* file, int line, const char* text) {
  std::fprintf(stderr, "kvilt: internal error at %s:%d: %s\n", file, line, text);
  std::abort();
}

}  // namespace kvilt::core

#define KVILT_CHECK(condition)                                                    \
  do {                                                                            \
    if (!(condition)) ::kvilt::core::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)

// Returns the Status of an expression from the enclosing function when it is not ok.
#define KVILT_RETURN_IF_ERROR(expression)                                                     \
  do {                                                                                        \
    if (::kvilt::Status kvilt_error_ = (expression); !kvilt_error_.ok()) return kvilt_error_; \
  } while (false)
