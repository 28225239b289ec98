// A receiver trusts nothing that comes over its link: what it cannot map, and references that do
// not lie within what it has mapped, are answers, never faults.
#include "transport/shm/peer_segments.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "base/segment.h"
#include "bootstrap/handoff.h"

namespace tutti::transport::shm {
namespace {

constexpr SegmentPurpose kPurpose{.name = "tutti-test", .what = "a test", .instead = "nothing"};
constexpr size_t kBytes = 8192;

class PeerSegmentsTest : public testing::Test {
 protected:
  PeerSegmentsTest() : segments_({.handoffName = handoff_.name(), .rank = 3}) {
    handoff_.addSource([this](const bootstrap::HandoffToken& token) {
      return token == token_ ? UniqueFd(::fcntl(owned_.fd.get(), F_DUPFD_CLOEXEC, 0)) : UniqueFd();
    });
    token_.fill(std::byte{7});
  }

  Segment owned_ = createSegment(kBytes, kPurpose).value();
  bootstrap::HandoffToken token_{};
  bootstrap::Handoff handoff_;
  PeerSegments segments_;
};

TEST_F(PeerSegmentsTest, MapsWhatTheOwnerHandsOut) {
  ASSERT_TRUE(segments_.map({.serial = 5, .bytes = kBytes, .token = token_}));
  static_cast<char*>(owned_.memory.get())[100] = 42;
  const std::byte* found = segments_.find({.serial = 5, .offset = 100}, kBytes - 100);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(*found, std::byte{42});
}

TEST_F(PeerSegmentsTest, FindsNothingBeyondTheEndOrOfOtherSerials) {
  ASSERT_TRUE(segments_.map({.serial = 5, .bytes = kBytes, .token = token_}));
  EXPECT_NE(segments_.find({.serial = 5, .offset = kBytes}, 0), nullptr);
  EXPECT_EQ(segments_.find({.serial = 5, .offset = kBytes}, 1), nullptr);
  EXPECT_EQ(segments_.find({.serial = 5, .offset = 1}, kBytes), nullptr);
  EXPECT_EQ(segments_.find({.serial = 5, .offset = UINT64_MAX}, 2), nullptr);
  EXPECT_EQ(segments_.find({.serial = 5, .offset = 0}, SIZE_MAX), nullptr);
  EXPECT_EQ(segments_.find({.serial = 0, .offset = 0}, 1), nullptr);
  EXPECT_EQ(segments_.find({.serial = 6, .offset = 0}, 1), nullptr);
  EXPECT_EQ(segments_.find({.serial = 5 + wire::kSegmentPlaces, .offset = 0}, 1), nullptr);
  EXPECT_EQ(segments_.find({.serial = UINT64_MAX, .offset = 0}, 1), nullptr);
}

TEST_F(PeerSegmentsTest, RefusesWrongTokensSizesAndSerials) {
  wire::SegmentToken wrong = token_;
  wrong[0] ^= std::byte{1};
  EXPECT_FALSE(segments_.map({.serial = 5, .bytes = kBytes, .token = wrong}));
  EXPECT_FALSE(segments_.map({.serial = 5, .bytes = kBytes * 2, .token = token_}));
  EXPECT_FALSE(segments_.map({.serial = 5, .bytes = UINT64_MAX, .token = token_}));
  EXPECT_FALSE(segments_.map({.serial = 5, .bytes = 0, .token = token_}));
  EXPECT_FALSE(segments_.map({.serial = 0, .bytes = kBytes, .token = token_}));
  EXPECT_EQ(segments_.find({.serial = 5, .offset = 0}, 1), nullptr);
}

TEST_F(PeerSegmentsTest, RefusesMemoryThatCouldShrink) {
  owned_.fd = UniqueFd(::memfd_create("tutti-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(owned_.fd.get(), kBytes), 0);
  EXPECT_FALSE(segments_.map({.serial = 5, .bytes = kBytes, .token = token_}));
}

TEST_F(PeerSegmentsTest, PutsANewSegmentInThePlaceOfAnOldOne) {
  ASSERT_TRUE(segments_.map({.serial = 5, .bytes = kBytes, .token = token_}));
  const uint64_t later = 5 + wire::kSegmentPlaces;
  ASSERT_TRUE(segments_.map({.serial = later, .bytes = kBytes, .token = token_}));
  EXPECT_EQ(segments_.find({.serial = 5, .offset = 0}, 1), nullptr);
  EXPECT_NE(segments_.find({.serial = later, .offset = 0}, 1), nullptr);
}

TEST_F(PeerSegmentsTest, AnOwnerThatIsGoneIsRefusedAtOnce) {
  PeerSegments segments({.handoffName = "tutti-nobody", .rank = 1});
  EXPECT_FALSE(segments.map({.serial = 5, .bytes = kBytes, .token = token_}));
}

}  // namespace
}  // namespace tutti::transport::shm
