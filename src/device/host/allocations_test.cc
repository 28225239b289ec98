// Replaces operator new, in a file of its own: where the compiler sees both sides inlined it takes
// malloc and delete for a mismatch.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>

#include "device/host/allocations_for_test.h"

namespace {

std::atomic<uint64_t> newCount{0};

}  // namespace

void* operator new(size_t bytes) {
  newCount.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  newCount.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace tutti::device::host {

uint64_t allocationCount() { return newCount.load(); }

namespace {

TEST(AllocationCount, CountsAllocations) {
  const uint64_t before = allocationCount();
  const auto one = std::make_unique<std::atomic<int>>(1);
  one->fetch_add(1);
  EXPECT_GT(allocationCount(), before);
}

}  // namespace
}  // namespace tutti::device::host
