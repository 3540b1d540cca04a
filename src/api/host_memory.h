// Host memory aligned to 256 bytes, behind Buffer and kvilt_allocate.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kvilt/status.h"

namespace kvilt::api {

// Not initialised; null for 0 bytes. Errors: kInvalidArgument (bytes < 0), kResourceExhausted.
Result<std::byte*> AllocateHost(std::int64_t bytes);
void FreeHost(void* memory);

}  // namespace kvilt::api
