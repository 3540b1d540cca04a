// A fiber: a stack of its own, and where it stopped. A switch is a dozen instructions.
//
// Fibers belong to the OS thread that prepared them and never leave it.
#pragma once

#include <cstddef>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define KVILT_EMULATOR_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KVILT_EMULATOR_ASAN 1
#endif
#endif

#ifdef KVILT_EMULATOR_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// Pushes what a call preserves, stores the stack pointer in *save, goes to `target`, pops.
extern "C" void KviltSwitchStack(void** save, void* target);

namespace kvilt::emulator {

struct Fiber {
  void* stack_pointer = nullptr;
  const void* bottom = nullptr;  // Of the stack, its lowest address.
  std::size_t size = 0;
  void* fake_stack = nullptr;  // Of AddressSanitizer.
};

// The stacks of one OS thread, kept until it ends. Each has a page without access below it.
class StackPool {
 public:
  StackPool() = default;
  StackPool(const StackPool&) = delete;
  StackPool& operator=(const StackPool&) = delete;
  ~StackPool();

  // Makes `fiber` start in `entry` on stack `index` when it is switched to. Nothing may still run
  // on that stack. `entry` calls OnFiberEntry first, LeaveFiber last and never returns.
  void Prepare(Fiber& fiber, std::size_t index, void (*entry)());

 private:
  std::vector<std::byte*> stacks_;
};

#ifdef KVILT_EMULATOR_ASAN
// Who switched last: its bounds become known when the next one is told of the switch.
extern constinit thread_local Fiber* left_fiber;

inline void FinishSwitch(void* fake_stack) {
  Fiber& left = *left_fiber;
  __sanitizer_finish_switch_fiber(fake_stack, &left.bottom, &left.size);
}
inline void OnFiberEntry() { FinishSwitch(nullptr); }
inline void SwitchFiber(Fiber& from, Fiber& to) {
  left_fiber = &from;
  __sanitizer_start_switch_fiber(&from.fake_stack, to.bottom, to.size);
  KviltSwitchStack(&from.stack_pointer, to.stack_pointer);
  FinishSwitch(from.fake_stack);
}
// For the last time: `from` can be prepared again afterwards.
inline void LeaveFiber(Fiber& from, Fiber& to) {
  left_fiber = &from;
  __sanitizer_start_switch_fiber(nullptr, to.bottom, to.size);
  KviltSwitchStack(&from.stack_pointer, to.stack_pointer);
}
#else
inline void OnFiberEntry() {}
inline void SwitchFiber(Fiber& from, Fiber& to) {
  KviltSwitchStack(&from.stack_pointer, to.stack_pointer);
}
// For the last time: `from` can be prepared again afterwards.
inline void LeaveFiber(Fiber& from, Fiber& to) { SwitchFiber(from, to); }
#endif

}  // namespace kvilt::emulator
