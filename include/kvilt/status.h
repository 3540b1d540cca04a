// Status and Result<T>: the only way a Kvilt call fails.
//
// A user mistake is a value that names the operand, the field, the value found and what is
// accepted. A broken internal invariant is not a Status: it aborts with text (src/core/check.h).
// No function of the public API throws.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace kvilt {

enum class StatusCode : std::uint8_t {
  kOk = 0,
  kInvalidArgument = 1,    // The request itself is wrong on every device.
  kUnsupported = 2,        // Meaningful, but this device, path or build does not do it.
  kResourceExhausted = 3,  // A pool or workspace is too small; the message says what is needed.
  kFailedPrecondition =
      4,         // The operands do not match the plan, or an object is in the wrong state.
  kRuntime = 5,  // The device, driver, file system or allocator failed.
};

// "invalid argument", "unsupported", ...
std::string_view Name(StatusCode code);

// The outcome of a call. Cheap when ok (no allocation). Thread-compatible.
class [[nodiscard]] Status {
 public:
  Status() = default;  // ok

  // `field` is a path a user can find in their own call ("segments[0].k.scales.stride[3]");
  // `problem` says what was found and what is accepted. message() joins both.
  Status(StatusCode code, std::string field, std::string problem);

  static Status Ok() { return {}; }
  static Status Invalid(std::string field, std::string problem) {
    return {StatusCode::kInvalidArgument, std::move(field), std::move(problem)};
  }
  static Status Unsupported(std::string field, std::string problem) {
    return {StatusCode::kUnsupported, std::move(field), std::move(problem)};
  }
  static Status Exhausted(std::string field, std::string problem) {
    return {StatusCode::kResourceExhausted, std::move(field), std::move(problem)};
  }
  static Status Precondition(std::string field, std::string problem) {
    return {StatusCode::kFailedPrecondition, std::move(field), std::move(problem)};
  }
  static Status Runtime(std::string field, std::string problem) {
    return {StatusCode::kRuntime, std::move(field), std::move(problem)};
  }

  bool ok() const { return code_ == StatusCode::kOk; }
  explicit operator bool() const { return ok(); }
  StatusCode code() const { return code_; }
  const std::string& field() const { return field_; }      // Empty when ok.
  const std::string& message() const { return message_; }  // "<field>: <problem>"; empty when ok.

  friend bool operator==(const Status&, const Status&) = default;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string field_;
  std::string message_;
};

// A value or the Status that explains its absence.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    if (status_.ok()) Die("Result built from an ok Status without a value");
  }

  bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Status& status() const { return status_; }

  // REQUIRES: ok(); otherwise prints the status and aborts, which is what an example wants.
  T& value() & {
    if (!ok()) Die(status_.message().c_str());
    return *value_;
  }
  const T& value() const& {
    if (!ok()) Die(status_.message().c_str());
    return *value_;
  }
  T&& value() && {
    if (!ok()) Die(status_.message().c_str());
    return std::move(*value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  [[noreturn]] static void Die(const char* text) {
    std::fprintf(stderr, "kvilt: Result::value() on an error: %s\n", text);
    std::abort();
  }
  std::optional<T> value_;
  Status status_;
};

}  // namespace kvilt
