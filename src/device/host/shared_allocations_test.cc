#include "device/host/shared_allocations.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <vector>

#include "base/process_counts_testing.h"
#include "base/segment.h"

namespace tutti::device::host {
namespace {

const CpuNodes kNodes("/none/");  // of a machine without nodes

TEST(SharedAllocations, FindTheSegmentOfABufferInside) {
  SharedAllocations allocations{kNodes};
  EXPECT_EQ(allocations.generation(), 0u);
  auto* start = static_cast<std::byte*>(allocations.allocate(10'000).value());
  const wire::SharedSegment segment = allocations.find(start + 100, 9'000);
  EXPECT_EQ(segment.serial, 1u);
  EXPECT_EQ(segment.start, start);
  EXPECT_EQ(segment.bytes, 12'288u);
  EXPECT_EQ(allocations.find(start + 1, 12'287).serial, 1u);
  EXPECT_EQ(allocations.find(start + 1, 12'288).serial, 0u);
  EXPECT_EQ(allocations.find(start - 1, 10).serial, 0u);
  EXPECT_EQ(allocations.find(&allocations, 1).serial, 0u);
  EXPECT_EQ(allocations.find(start + 1, SIZE_MAX).serial, 0u);
  EXPECT_TRUE(allocations.free(start).ok());
  EXPECT_EQ(allocations.find(start, 1).serial, 0u);
}

TEST(SharedAllocations, NeverUseASerialOrTokenAgain) {
  SharedAllocations allocations{kNodes};
  std::vector<wire::SegmentToken> tokens;
  for (uint64_t serial = 1; serial <= 20; ++serial) {
    const uint64_t before = allocations.generation();
    void* memory = allocations.allocate(1).value();
    const wire::SharedSegment segment = allocations.find(memory, 1);
    EXPECT_EQ(segment.serial, serial);
    EXPECT_EQ(std::ranges::find(tokens, segment.token), tokens.end());
    tokens.push_back(segment.token);
    EXPECT_TRUE(allocations.free(memory).ok());
    EXPECT_EQ(allocations.generation(), before + 2);
  }
}

TEST(SharedAllocations, KeepTheLibrarysOwnToThemselves) {
  SharedAllocations allocations{kNodes};
  const wire::SharedSegment own = allocations.allocateOwn(5000);
  ASSERT_EQ(own.serial, 1u);
  EXPECT_EQ(own.bytes, 8192u);
  EXPECT_EQ(allocations.generation(), 0u) << "no caller's buffer is shared";
  EXPECT_EQ(allocations.find(own.start, 1).serial, 0u);
  EXPECT_FALSE(allocations.free(const_cast<std::byte*>(own.start)).ok());
  const UniqueFd fd = allocations.open(own.token);
  const UniqueMapping there = mapSegment(fd, 8192, SegmentAccess::kRead).value();
  const_cast<std::byte*>(own.start)[4999] = std::byte{9};
  allocations.freeOwn(own);
  EXPECT_EQ(static_cast<const char*>(there.get())[4999], 9) << "who has it mapped may go on";
  EXPECT_FALSE(allocations.open(own.token));
}

// An adapter that was told of it may still look there.
TEST(SharedAllocations, KeepTheAddressesOfWhatIsHeld) {
  SharedAllocations allocations{kNodes};
  EXPECT_EQ(allocations.hold(&allocations, 1).serial, 0u);
  auto* first = static_cast<std::byte*>(allocations.allocate(100'000).value());
  std::fill_n(first, 100'000, std::byte{7});
  const wire::SharedSegment held = allocations.hold(first + 5, 10);
  EXPECT_EQ(held.serial, 1u);
  EXPECT_EQ(allocations.hold(first, 1).serial, 1u);
  allocations.drop(held);
  ASSERT_TRUE(allocations.free(first).ok());
  EXPECT_EQ(allocations.find(first, 1).serial, 0u);
  EXPECT_EQ(allocations.hold(first, 1).serial, 0u);
  EXPECT_FALSE(allocations.free(first).ok());
  for (int i = 0; i < 20; ++i) {
    const auto* other = static_cast<std::byte*>(allocations.allocate(100'000).value());
    EXPECT_TRUE(other + 100'000 <= first || first + 100'000 <= other);
  }
  EXPECT_EQ(first[99'999], std::byte{0}) << "its pages have been given back";
  allocations.drop(held);
  allocations.drop(held);  // nobody's any more
}

TEST(SharedAllocations, OpenOnlyForTheToken) {
  SharedAllocations allocations{kNodes};
  void* memory = allocations.allocate(5000).value();
  wire::SegmentToken token = allocations.find(memory, 1).token;
  const UniqueFd fd = allocations.open(token);
  const UniqueMapping there = mapSegment(fd, 8192, SegmentAccess::kRead).value();
  static_cast<char*>(memory)[4999] = 9;
  EXPECT_EQ(static_cast<const char*>(there.get())[4999], 9);
  token[15] ^= std::byte{1};
  EXPECT_FALSE(allocations.open(token));
  token[15] ^= std::byte{1};
  EXPECT_TRUE(allocations.free(memory).ok());
  EXPECT_FALSE(allocations.open(token));
}

TEST(SharedAllocations, GiveTheirPagesBackWhilePeersStillMapThem) {
  SharedAllocations allocations{kNodes};
  void* memory = allocations.allocate(1 << 20).value();
  std::fill_n(static_cast<char*>(memory), 1 << 20, 'x');
  const UniqueFd fd = allocations.open(allocations.find(memory, 1).token);
  const UniqueMapping there = mapSegment(fd, 1 << 20, SegmentAccess::kRead).value();
  EXPECT_TRUE(allocations.free(memory).ok());
  struct stat info {};
  ASSERT_EQ(::fstat(fd.get(), &info), 0);
  EXPECT_EQ(info.st_blocks, 0);
  EXPECT_EQ(static_cast<const char*>(there.get())[12345], 0);  // no fault
}

TEST(SharedAllocations, LeaveTheProgramMostOfItsDescriptors) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit small{.rlim_cur = 40, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &small), 0);
  const size_t open = openDescriptors();
  SharedAllocations allocations{kNodes};
  std::vector<void*> all;
  size_t shared = 0;
  for (int i = 0; i < 100; ++i) {
    all.push_back(allocations.allocate(100).value());
    if (allocations.find(all.back(), 100).serial != 0) ++shared;
  }
  EXPECT_EQ(shared, 10u);
  EXPECT_EQ(openDescriptors() - open, 10u);
  for (void* memory : all) {
    *static_cast<char*>(memory) = 1;
    EXPECT_TRUE(allocations.free(memory).ok());
  }
  EXPECT_EQ(openDescriptors(), open);
  EXPECT_NE(allocations.find(allocations.allocate(1).value(), 1).serial, 0u);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace
}  // namespace tutti::device::host
