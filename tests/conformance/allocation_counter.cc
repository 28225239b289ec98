#include "allocation_counter.h"

#include <cstdlib>
#include <new>

namespace {

thread_local bool isCounting = false;
thread_local size_t allocationCount = 0;

}  // namespace

namespace tutti::conformance {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
bool canCount() { return false; }
#else
bool canCount() { return true; }
#endif

void startCounting() {
  allocationCount = 0;
  isCounting = true;
}

size_t stopCounting() {
  isCounting = false;
  return allocationCount;
}

}  // namespace tutti::conformance

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
void* operator new(size_t bytes) {
  if (isCounting) ++allocationCount;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
#endif
