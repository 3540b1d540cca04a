// What every verb checks of its device and stream first.
#pragma once

#include <fmt/format.h>

#include "src/api/device_impl.h"

namespace kvilt::api {

// The CPU has one order of calls, the caller's.
inline Status CheckStream(const Device& device, Stream stream) {
  if (device.impl()->on_gpu() || stream.handle == nullptr) return {};
  return Status::Invalid("stream", "the CPU has only the default one");
}

// For verbs that this version has on the CPU alone.
inline Status CheckOnCpu(const Device& device, std::string_view verb) {
  if (!device.impl()->on_gpu()) return {};
  return Status::Unsupported(
      "device",
      fmt::format("cuda:{}: {} runs on the CPU alone in this version", device.id().index, verb));
}

}  // namespace kvilt::api
