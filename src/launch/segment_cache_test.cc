#include "launch/segment_cache.h"

#include <gtest/gtest.h>

#include <array>

namespace tutti::launch {
namespace {

// One segment, which a test may move; counts who asks.
class FakeMemory final : public device::SharedMemory {
 public:
  wire::SharedSegment find(const void* memory, size_t bytes) override {
    ++asked;
    return segment.contains(memory, bytes) ? segment : wire::SharedSegment{};
  }
  uint64_t generation() const override { return present; }
  wire::SharedSegment hold(const void* memory, size_t bytes) override {
    return find(memory, bytes);
  }
  void drop(const wire::SharedSegment&) override {}
  wire::SharedSegment allocateOwn(size_t) override { return {}; }
  void freeOwn(const wire::SharedSegment&) override {}
  UniqueFd open(const wire::SegmentToken&) override { return UniqueFd(); }

  wire::SharedSegment segment;
  uint64_t present = 0;
  int asked = 0;
};

class SegmentCacheTest : public testing::Test {
 protected:
  void allocate(uint64_t serial) {
    memory_.segment = {
        .serial = serial, .start = buffer_.data(), .bytes = buffer_.size(), .token = {}};
    ++memory_.present;
  }

  std::array<std::byte, 4096> buffer_{};
  FakeMemory memory_;
  SegmentCache cache_{&memory_};
};

TEST_F(SegmentCacheTest, AsksNobodyWhileThereWasNeverASegment) {
  EXPECT_FALSE(cache_.hasAny());
  EXPECT_EQ(cache_.find(buffer_.data(), 8).serial, 0u);
  EXPECT_EQ(memory_.asked, 0);
  EXPECT_FALSE(SegmentCache(nullptr).hasAny());
}

TEST_F(SegmentCacheTest, AsksOnceForAnyPartOfASegment) {
  allocate(3);
  for (const size_t offset : {size_t{0}, size_t{100}, buffer_.size() - 8})
    EXPECT_EQ(cache_.find(buffer_.data() + offset, 8).serial, 3u);
  EXPECT_EQ(memory_.asked, 1);
}

TEST_F(SegmentCacheTest, ForgetsWhatWasFreed) {
  allocate(3);
  EXPECT_EQ(cache_.find(buffer_.data(), 8).serial, 3u);
  memory_.segment = {};
  ++memory_.present;
  EXPECT_EQ(cache_.find(buffer_.data(), 8).serial, 0u);
}

TEST_F(SegmentCacheTest, KnowsTheSegmentThatTookAnAddressOver) {
  allocate(3);
  EXPECT_EQ(cache_.find(buffer_.data(), 8).serial, 3u);
  allocate(4);
  EXPECT_EQ(cache_.find(buffer_.data(), 8).serial, 4u);
}

TEST_F(SegmentCacheTest, FindsNoSegmentForABufferThatLeavesIt) {
  allocate(3);
  EXPECT_EQ(cache_.find(buffer_.data(), buffer_.size()).serial, 3u);
  EXPECT_EQ(cache_.find(buffer_.data() + 1, buffer_.size()).serial, 0u);
  EXPECT_EQ(cache_.find(buffer_.data(), 0).serial, 0u);
}

}  // namespace
}  // namespace tutti::launch
