// A driver of our own: tests of Gpu and PinnedRing on machines without a GPU. It has one device
// (or more), whose memory is the host's and whose streams do all at once, except that events are
// done only when the test says so.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "src/cuda/driver.h"

namespace kvilt::cuda {

struct FakeLaunch {
  LaunchConfig config;
  bool dependent = false;
  int first_argument = 0;  // The first int of the kernel's argument.
};

// What the calls saw. One per process; Reset before each test.
struct FakeDriverState {
  std::mutex mutex;
  int devices = 1;
  int major = 9;
  int minor = 0;
  bool capturing = false;
  bool events_done = true;
  const char* fails = nullptr;  // The member whose calls fail with 2, out of memory.

  int contexts_retained = 0;
  int modules_loaded = 0;
  int pinned_allocated = 0;
  int pinned_freed = 0;
  int events_created = 0;
  int waits = 0;
  std::vector<FakeLaunch> launches;
};

FakeDriverState& Fake();
void ResetFake();
// The current thread's contexts pushed and not popped, and its capture mode.
int FakeContextDepth();
int FakeCaptureMode();
const Driver& FakeDriver();

}  // namespace kvilt::cuda
