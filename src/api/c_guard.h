// What the functions of the C ABI share: catching, the text of the last error, null checks.
#pragma once

#include <cstdint>
#include <exception>
#include <new>
#include <span>
#include <string>
#include <utility>

#include "kvilt/device.h"
#include "kvilt/kvilt_c.h"
#include "kvilt/status.h"
#include "src/core/check.h"

namespace kvilt::api {

// Keeps the text for kvilt_last_error in a fixed buffer of this thread, so that telling of an error
// needs no memory; returns the code.
kvilt_status ReportError(StatusCode code, const char* text) noexcept;

// Runs `body` -> Status; nothing that it throws gets out.
template <class Body>
kvilt_status Guard(Body&& body) noexcept {
  try {
    const Status status = body();
    if (status.ok()) return KVILT_OK;
    return ReportError(status.code(), status.message().c_str());
  } catch (const std::bad_alloc&) {
    return ReportError(StatusCode::kResourceExhausted, "no host memory");
  } catch (const std::exception& error) {
    return ReportError(StatusCode::kRuntime, error.what());
  } catch (...) {
    return ReportError(StatusCode::kRuntime, "an exception of unknown type");
  }
}

inline Status NotNull(const void* pointer, const char* field) {
  return pointer == nullptr ? Status::Invalid(field, "null; accepted: an address") : Status();
}

// The span that a pointer and a count announce.
template <class T>
Result<std::span<T>> Array(T* data, std::int64_t count, const char* field) {
  if (count < 0 || (count > 0 && data == nullptr)) {
    return Status::Invalid(field, count < 0 ? std::to_string(count) + " elements; accepted: >= 0"
                                            : "null; accepted: an address of so many elements");
  }
  return std::span<T>(data, static_cast<std::size_t>(count));
}

// Hands a result out as a new handle.
template <class Handle, class T>
Status HandOut(Result<T> result, const char* field, Handle** out) {
  KVILT_RETURN_IF_ERROR(NotNull(out, field));
  if (!result.ok()) return result.status();
  *out = new Handle{std::move(result).value()};
  return {};
}

}  // namespace kvilt::api

// The handle that both halves of the ABI take.
struct kvilt_device {
  kvilt::Device device;
};
