// Host memory that is not there, as a Status: no function of the public API throws.
#pragma once

#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "kvilt/status.h"

namespace kvilt::api {

// Runs `body` -> Status. A failed allocation of its becomes kResourceExhausted, which names `field`
// and says what the memory was for.
template <class Body>
Status OrNoMemory(std::string_view field, std::string_view purpose, Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {
  }
  return Status::Exhausted(std::string(field), "no host memory for " + std::string(purpose));
}

}  // namespace kvilt::api
