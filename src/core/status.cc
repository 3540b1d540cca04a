#include "kvilt/status.h"

namespace kvilt {

std::string_view Name(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kInvalidArgument:
      return "invalid argument";
    case StatusCode::kUnsupported:
      return "unsupported";
    case StatusCode::kResourceExhausted:
      return "resource exhausted";
    case StatusCode::kFailedPrecondition:
      return "failed precondition";
    case StatusCode::kRuntime:
      return "runtime error";
  }
  return "unknown status code";
}

Status::Status(StatusCode code, std::string field, std::string problem)
    : code_(code), field_(std::move(field)) {
  message_ = field_.empty() ? std::move(problem) : field_ + ": " + problem;
}

}  // namespace kvilt
