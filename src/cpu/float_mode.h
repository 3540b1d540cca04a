// The floating-point mode that every CPU kernel runs in: round to nearest even, subnormals kept (no
// FTZ, no DAZ), exceptions masked. Hosts that load fast-math libraries often leave FTZ/DAZ set;
// bits must not depend on it.
#pragma once

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace kvilt::cpu {

// Sets the mode for the calling thread and restores the former one, its flags included. Every
// worker needs its own. Compilers may move arithmetic across the switch within one function, so
// make the object in a function that calls the kernel, and keep the kernel out of line.
class ScopedFloatMode {
 public:
#if defined(__SSE2__)
  ScopedFloatMode() : former_(_mm_getcsr()) { _mm_setcsr(kDefaultMxcsr); }
  ~ScopedFloatMode() { _mm_setcsr(former_); }
#elif defined(__aarch64__)
  ScopedFloatMode() {
    asm volatile("mrs %0, fpcr" : "=r"(former_)::"memory");
    asm volatile("msr fpcr, %0" ::"r"(0ull) : "memory");
  }
  ~ScopedFloatMode() { asm volatile("msr fpcr, %0" ::"r"(former_) : "memory"); }
#else
  ScopedFloatMode() = default;  // No flush mode is known here.
  ~ScopedFloatMode() = default;
#endif
  ScopedFloatMode(const ScopedFloatMode&) = delete;
  ScopedFloatMode& operator=(const ScopedFloatMode&) = delete;

 private:
#if defined(__SSE2__)
  static constexpr unsigned kDefaultMxcsr = 0x1F80;  // All exceptions masked, nothing else.
  unsigned former_;
#elif defined(__aarch64__)
  unsigned long long former_;
#endif
};

}  // namespace kvilt::cpu
