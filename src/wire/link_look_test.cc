#include "wire/link_look.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

namespace tutti::wire {
namespace {

class LinkLooks : public testing::TestWithParam<LinkGeometry> {
 protected:
  LinkLooks()
      : memory_(std::aligned_alloc(kCacheLineBytes, linkBytes(GetParam())), &std::free),
        view_(viewLink(std::memset(memory_.get(), 0, linkBytes(GetParam())), GetParam())) {
    sender_.view = view_;
    receiver_.view = view_;
  }
  bool send(uint32_t bytes) {
    if (!hasFreeSlot(sender_, bytes)) return false;
    publish(sender_, bytes, 7);
    return true;
  }
  bool receive() {
    if (!hasMessage(receiver_)) return false;
    release(receiver_);
    return true;
  }

  std::unique_ptr<void, decltype(&std::free)> memory_;
  LinkView view_;
  LinkPort sender_, receiver_;
};
INSTANTIATE_TEST_SUITE_P(Geometries, LinkLooks,
                         testing::Values(LinkGeometry{1, 64}, LinkGeometry{8, 256},
                                         LinkGeometry{4, 8192, 64}));

// Whatever is under way, and after the ring has gone round often.
TEST_P(LinkLooks, TellHowManyCameAndHowManyWereGivenBack) {
  const uint64_t ring = ringCount(GetParam());
  uint64_t sent = 0, received = 0;
  for (uint64_t i = 0; i < 20 * ring; ++i) {
    for (uint64_t burst = 0; burst <= i % ring; ++burst) sent += send(8) ? 1 : 0;
    for (uint64_t burst = 0; burst <= i % (ring / 2 + 1); ++burst) received += receive() ? 1 : 0;
    const LinkLook look = lookAt(view_);
    ASSERT_EQ(look.published, sent);
    ASSERT_LE(look.givenBack, received);
    ASSERT_GT(look.givenBack + releasedTogether(static_cast<uint32_t>(ring)), received);
    ASSERT_EQ(look.slots, ring);
  }
  EXPECT_GT(received, ring);
  while (receive()) ++received;
  releaseAll(receiver_);
  EXPECT_EQ(lookAt(view_).givenBack, sent);
  EXPECT_EQ(sent, received);
}

TEST_P(LinkLooks, TellOfFaultsAndSleepers) {
  EXPECT_EQ(lookAt(view_).senderFault, LinkFault::kNone);
  view_.control->receiverFault.store(static_cast<uint32_t>(LinkFault::kAborted));
  view_.control->senderSleeps.store(2);
  const LinkLook look = lookAt(view_);
  EXPECT_EQ(look.receiverFault, LinkFault::kAborted);
  EXPECT_EQ(look.senderFault, LinkFault::kNone);
  EXPECT_TRUE(look.senderSleeps);
  EXPECT_FALSE(look.receiverSleeps || look.isBeingRead || look.isBeingWritten);
}

// From a third thread, while both sides run: what it sees only grows, and never shows more given
// back than came.
TEST_P(LinkLooks, MayBeHadWhileMessagesGo) {
  constexpr uint64_t kMessages = 20'000;
  std::thread sending([this] {
    for (uint64_t sent = 0; sent < kMessages;) {
      if (send(40))
        ++sent;
      else
        std::this_thread::yield();
    }
  });
  std::thread receiving([this] {
    for (uint64_t received = 0; received < kMessages;) {
      if (receive())
        ++received;
      else
        std::this_thread::yield();
    }
  });
  LinkLook last;
  while (last.published < kMessages) {
    const LinkLook look = lookAt(view_);
    ASSERT_GE(look.published, last.published);
    ASSERT_GE(look.givenBack, last.givenBack);
    ASSERT_GE(look.published, look.givenBack);
    last = look;
    std::this_thread::yield();
  }
  sending.join();
  receiving.join();
  EXPECT_EQ(lookAt(view_).published, kMessages);
}

}  // namespace
}  // namespace tutti::wire
