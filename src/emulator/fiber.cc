#include "src/emulator/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "src/emulator/fail.h"

#if defined(__x86_64__)
// rdi = save, rsi = target.
asm(R"(
.text
.p2align 4
.globl KviltSwitchStack
.hidden KviltSwitchStack
.type KviltSwitchStack, @function
KviltSwitchStack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size KviltSwitchStack, .-KviltSwitchStack
)");
#elif defined(__aarch64__)
// x0 = save, x1 = target.
asm(R"(
.text
.p2align 4
.globl KviltSwitchStack
.hidden KviltSwitchStack
.type KviltSwitchStack, %function
KviltSwitchStack:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size KviltSwitchStack, .-KviltSwitchStack
)");
#else
#error "the emulator switches stacks on x86-64 and aarch64 only"
#endif

namespace kvilt::emulator {

namespace {

#ifdef KVILT_EMULATOR_ASAN
constexpr std::size_t kStackBytes = std::size_t{512} << 10;
#else
constexpr std::size_t kStackBytes = std::size_t{128} << 10;
#endif

// What KviltSwitchStack pops, in 8-byte words from the stack pointer, and where the entry stands.
#if defined(__x86_64__)
constexpr std::size_t kFrameWords = 8;  // Six registers, the entry, and its return address (none).
constexpr std::size_t kEntryWord = 6;
#else
constexpr std::size_t kFrameWords = 20;
constexpr std::size_t kEntryWord = 11;  // x30
#endif

std::size_t PageBytes() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

std::byte* MapStack() {
  const std::size_t guard = PageBytes();
  void* map = mmap(nullptr, guard + kStackBytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED || mprotect(map, guard, PROT_NONE) != 0) Fail("no memory for a stack");
  return static_cast<std::byte*>(map) + guard;
}

}  // namespace

#ifdef KVILT_EMULATOR_ASAN
constinit thread_local Fiber* left_fiber = nullptr;
#endif

StackPool::~StackPool() {
  for (std::byte* stack : stacks_) munmap(stack - PageBytes(), PageBytes() + kStackBytes);
}

void StackPool::Prepare(Fiber& fiber, std::size_t index, void (*entry)()) {
  while (stacks_.size() <= index) stacks_.push_back(MapStack());
  std::byte* stack = stacks_[index];
#ifdef KVILT_EMULATOR_ASAN
  __asan_unpoison_memory_region(stack, kStackBytes);  // The last fiber here never returned.
#endif
  // Stacks begin at different offsets in a page, else all would share a few sets of the cache.
  const std::size_t offset = index % 21 * 192;
  auto* words = reinterpret_cast<std::uint64_t*>(stack + kStackBytes - offset) - kFrameWords;
  for (std::size_t i = 0; i < kFrameWords; ++i) words[i] = 0;
  words[kEntryWord] = reinterpret_cast<std::uintptr_t>(entry);
  fiber = {words, stack, kStackBytes, nullptr};
}

}  // namespace kvilt::emulator
