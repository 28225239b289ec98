#include "base/memory_map.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

namespace tutti {
namespace {

using Reason = MemoryFault::Reason;

constexpr std::string_view kMap =
    "1000-3000 r--p 00000000 08:01 1234   /usr/bin/program\n"
    "3000-5000 rw-p 00000000 00:00 0      [heap]\n"
    "5000-6000 rw-s 00000000 00:01 5      /memfd:a b (deleted)\n"
    "8000-9000 ---p 00000000 00:00 0\n"
    "fffffffffffff000-ffffffffffffffff rw-p 00000000 00:00 0\n";

void expectFault(uintptr_t from, size_t bytes, MemoryUse use, MemoryFault wanted) {
  const auto fault = findFault(kMap, from, bytes, use);
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->at, wanted.at);
  EXPECT_EQ(fault->reason, wanted.reason);
}

TEST(MemoryMap, FindsNoFaultInWhatIsThereAcrossMappings) {
  EXPECT_FALSE(findFault(kMap, 0x1000, 0x5000, MemoryUse::kRead));
  EXPECT_FALSE(findFault(kMap, 0x3000, 0x3000, MemoryUse::kWrite));
  EXPECT_FALSE(findFault(kMap, 0x5fff, 1, MemoryUse::kWrite));
  EXPECT_FALSE(findFault(kMap, 0x7000, 0, MemoryUse::kRead));
}

TEST(MemoryMap, NamesTheFirstPlaceThatCannotBeUsedAndWhy) {
  expectFault(0x2fff, 2, MemoryUse::kWrite, {0x2fff, Reason::kReadOnly});
  expectFault(0x5fff, 2, MemoryUse::kRead, {0x6000, Reason::kUnmapped});
  expectFault(0x7000, 1, MemoryUse::kRead, {0x7000, Reason::kUnmapped});
  expectFault(0x8800, 1, MemoryUse::kRead, {0x8800, Reason::kUnreadable});
  expectFault(0x0, 0x2000, MemoryUse::kRead, {0x0, Reason::kUnmapped});
  expectFault(0x9000, 1, MemoryUse::kRead, {0x9000, Reason::kUnmapped});
}

TEST(MemoryMap, TakesStretchesThatLeaveTheAddressSpace) {
  expectFault(UINTPTR_MAX - 0xfff, SIZE_MAX, MemoryUse::kRead, {UINTPTR_MAX, Reason::kUnmapped});
  expectFault(0x1000, SIZE_MAX, MemoryUse::kRead, {0x6000, Reason::kUnmapped});
}

TEST(MemoryMap, OfOtherTextsIsAllFault) {
  for (const std::string_view text :
       {"", "\n", "-", "- r", "1000-3000 r", "1000 - 3000 rw-p", "x-y rw-p", "rw-p 1000-3000"})
    EXPECT_TRUE(findFault(text, 0x1000, 1, MemoryUse::kRead)) << text;
}

TEST(MemoryMap, KnowsOwnMemory) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  void* const memory =
      ::mmap(nullptr, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const auto from = reinterpret_cast<uintptr_t>(memory);
  const auto reasonAt = [&](size_t which) {
    return findFault(readMemoryMap(), from + which * page, page, MemoryUse::kWrite);
  };
  EXPECT_FALSE(findFault(readMemoryMap(), from, 4 * page, MemoryUse::kWrite));
  ASSERT_EQ(::mprotect(static_cast<std::byte*>(memory) + page, page, PROT_READ), 0);
  ASSERT_EQ(::mprotect(static_cast<std::byte*>(memory) + 2 * page, page, PROT_NONE), 0);
  ASSERT_EQ(::munmap(static_cast<std::byte*>(memory) + 3 * page, page), 0);
  EXPECT_FALSE(reasonAt(0));
  ASSERT_TRUE(reasonAt(1) && reasonAt(2) && reasonAt(3));
  EXPECT_EQ(reasonAt(1)->reason, Reason::kReadOnly);
  EXPECT_EQ(reasonAt(2)->reason, Reason::kUnreadable);
  EXPECT_EQ(reasonAt(3)->reason, Reason::kUnmapped);
  ::munmap(memory, 3 * page);
}

}  // namespace
}  // namespace tutti
