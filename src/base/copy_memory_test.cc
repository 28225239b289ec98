#include "base/copy_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/rng.h"

namespace tutti {
namespace {

TEST(CopyMemory, BringsEveryByteAndNoOther) {
  constexpr size_t kMost = 3 * kAliasBytes;
  constexpr std::byte kUntouched{0xa5};
  std::vector<std::byte> from(kMost + kAliasBytes);
  SeededRng(1).fill(from);
  for (const size_t ahead : {0, 1, 8, 16, 31, 32, 100, 4095}) {
    for (const size_t bytes : {0, 1, 1023, 1024, 1025, 2048, 5000, 12'000}) {
      std::vector<std::byte> to(kMost + 2 * kAliasBytes, kUntouched);
      const size_t begin = (reinterpret_cast<uintptr_t>(from.data()) -
                            reinterpret_cast<uintptr_t>(to.data()) + ahead) %
                           kAliasBytes;
      copyMemory(to.data() + begin, from.data(), bytes);
      const auto copied = to.begin() + static_cast<ptrdiff_t>(begin);
      const auto end = copied + static_cast<ptrdiff_t>(bytes);
      ASSERT_TRUE(std::equal(copied, end, from.begin())) << ahead << " " << bytes;
      ASSERT_EQ(std::count(to.begin(), copied, kUntouched), copied - to.begin());
      ASSERT_EQ(std::count(end, to.end(), kUntouched), to.end() - end);
    }
  }
}

TEST(CopyMemory, TakesTheDestinationsJustAheadOfTheSourceForOverlaps) {
  alignas(kAliasBytes) static std::byte memory[2 * kAliasBytes];
  const std::byte* from = memory + 64;
  for (const size_t ahead : {1, 8, 31})
    EXPECT_TRUE(looksOverlapping(from + ahead, from) &&
                looksOverlapping(from + kAliasBytes + ahead, from));
  for (const size_t ahead : {0, 32, 64, 4032}) EXPECT_FALSE(looksOverlapping(from + ahead, from));
  EXPECT_FALSE(looksOverlapping(memory, memory + 8));
}

TEST(CopyMemory, FindsThePlaceInAPageThatIsAlike) {
  alignas(kAliasBytes) static std::byte memory[3 * kAliasBytes];
  for (const size_t from : {0, 1, 100, 4095}) {
    for (const size_t room : {0, 1, 101, 4095}) {
      const std::byte* place = placeAlike(memory + kAliasBytes + room, memory + from);
      EXPECT_EQ(static_cast<size_t>(place - memory) % kAliasBytes, from);
      EXPECT_GE(place, memory + kAliasBytes + room);
      EXPECT_LT(place, memory + 2 * kAliasBytes + room);
    }
  }
}

}  // namespace
}  // namespace tutti
