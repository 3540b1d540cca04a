#include "src/cuda/driver.h"

#include "src/cuda/library.h"

namespace kvilt::cuda {
namespace {

Result<Driver> OpenAndInit() {
  Result<Driver> driver = OpenDriver("libcuda.so.1");
  if (!driver.ok()) return driver;
  const Status init = DriverStatus(*driver, driver->Init(0), driver_symbol::kInit);
  if (!init.ok()) {
    return Status::Unsupported("cuda", "no GPU that can be used: " + init.message());
  }
  return driver;
}

}  // namespace

Result<Driver> OpenDriver(const char* path) {
  Result<Library> library = Library::Open(path);
  if (!library.ok()) {
    return Status::Unsupported("cuda", "no NVIDIA driver here: " + library.status().message());
  }
  Driver driver;
  const char* missing = nullptr;
#define KVILT_RESOLVE(member, symbol, parameters)                                    \
  driver.member = reinterpret_cast<decltype(driver.member)>(library->Find(#symbol)); \
  if (driver.member == nullptr && missing == nullptr) missing = #symbol;
  KVILT_DRIVER_CALLS(KVILT_RESOLVE)
#undef KVILT_RESOLVE
  if (missing != nullptr) {
    return Status::Unsupported("cuda", std::string(path) + " has no " + missing +
                                           "; accepted: drivers of CUDA 12 and later");
  }
  return driver;
}

Result<const Driver*> LoadDriver() {
  static const Result<Driver> driver = OpenAndInit();
  if (!driver.ok()) return driver.status();
  return &*driver;
}

Status DriverStatus(const Driver& driver, DriverResult result, const char* call,
                    std::string_view subject) {
  if (result == kDriverSuccess) return Status::Ok();
  std::string field = call;
  if (!subject.empty()) field.append("(").append(subject).append(")");
  const char* name = nullptr;
  const char* text = nullptr;
  if (driver.GetErrorName(result, &name) != kDriverSuccess || name == nullptr) {
    return Status::Runtime(std::move(field), "CUDA error " + std::to_string(result));
  }
  std::string problem = name;
  if (driver.GetErrorString(result, &text) == kDriverSuccess && text != nullptr) {
    problem.append(": ").append(text);
  }
  return Status::Runtime(std::move(field), std::move(problem));
}

}  // namespace kvilt::cuda
