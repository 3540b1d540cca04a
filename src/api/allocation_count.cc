#include "src/api/allocation_count.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<long> allocations{0};
std::atomic<long> bytes{0};
std::atomic<long> until_failure{-1};  // Below 0: none fails.

void* Allocate(std::size_t size, std::size_t alignment) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  bytes.fetch_add(static_cast<long>(size), std::memory_order_relaxed);
  if (until_failure.load() >= 0 && until_failure.fetch_sub(1) == 0) return nullptr;
  const std::size_t rounded = (size + alignment - 1) / alignment * alignment;
  return std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
}

void* AllocateOrThrow(std::size_t size, std::size_t alignment) {
  if (void* memory = Allocate(size, alignment)) return memory;
  throw std::bad_alloc();
}

constexpr std::size_t kDefault = __STDCPP_DEFAULT_NEW_ALIGNMENT__;
constexpr std::size_t Bytes(std::align_val_t alignment) {
  return static_cast<std::size_t>(alignment);
}

}  // namespace

// Every form by itself: under AddressSanitizer those left out would be the sanitizer's own.
void* operator new(std::size_t n) { return AllocateOrThrow(n, kDefault); }
void* operator new[](std::size_t n) { return AllocateOrThrow(n, kDefault); }
void* operator new(std::size_t n, std::align_val_t a) { return AllocateOrThrow(n, Bytes(a)); }
void* operator new[](std::size_t n, std::align_val_t a) { return AllocateOrThrow(n, Bytes(a)); }
void* operator new(std::size_t n, const std::nothrow_t&) noexcept { return Allocate(n, kDefault); }
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept {
  return Allocate(n, kDefault);
}
void* operator new(std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return Allocate(n, Bytes(a));
}
void* operator new[](std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return Allocate(n, Bytes(a));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

namespace kvilt::api::test {

long AllocationCount() { return allocations.load(std::memory_order_relaxed); }
long AllocatedBytes() { return bytes.load(std::memory_order_relaxed); }
void FailAllocation(long later) { until_failure.store(later); }
bool AllocationFailed() { return until_failure.exchange(-1) < 0; }

}  // namespace kvilt::api::test
