// Scopes of Gpu's methods: its context is the thread's, and, inside a Relaxed, calls that a
// capture elsewhere would forbid are allowed.
#pragma once

#include "src/cuda/gpu.h"

namespace kvilt::cuda {

class Gpu::Current {
 public:
  explicit Current(const Gpu& gpu)
      : driver_(gpu.driver_),
        status_(DriverStatus(driver_, driver_.CtxPushCurrent(gpu.context_),
                             driver_symbol::kCtxPushCurrent)) {}
  ~Current() {
    ContextHandle popped = nullptr;
    if (status_.ok()) driver_.CtxPopCurrent(&popped);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

  const Status& status() const { return status_; }

 private:
  const Driver& driver_;
  Status status_;
};

class Gpu::Relaxed {
 public:
  explicit Relaxed(const Gpu& gpu) : current_(gpu), driver_(gpu.driver_) { Exchange(); }
  ~Relaxed() { Exchange(); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

  const Status& status() const { return current_.status(); }

 private:
  void Exchange() {
    if (current_.status().ok()) driver_.ThreadExchangeStreamCaptureMode(&mode_);
  }

  Current current_;
  const Driver& driver_;
  int mode_ = kCaptureModeRelaxed;
};

}  // namespace kvilt::cuda
