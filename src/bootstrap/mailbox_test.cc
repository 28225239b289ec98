#include "bootstrap/mailbox.h"

#include <gtest/gtest.h>

namespace tutti::bootstrap {
namespace {

constexpr Rank kSender{3};
constexpr FrameType kKind = FrameType::kMessage;

TEST(Mailbox, KeepsOrderWithinATagAndTagsApart) {
  Mailbox mailbox;
  for (int value : {1, 2, 3}) {
    const auto tag = static_cast<uint64_t>(value % 2);
    ASSERT_TRUE(mailbox.push(kSender, kKind, tag, {static_cast<std::byte>(value)}));
  }
  EXPECT_EQ(mailbox.pop(kSender, kKind, 1), std::vector{std::byte{1}});
  EXPECT_EQ(mailbox.pop(kSender, kKind, 1), std::vector{std::byte{3}});
  EXPECT_EQ(mailbox.pop(kSender, kKind, 1), std::nullopt);
  EXPECT_EQ(mailbox.pop(kSender, kKind, 0), std::vector{std::byte{2}});
}

TEST(Mailbox, KeepsSendersAndKindsApart) {
  Mailbox mailbox;
  ASSERT_TRUE(mailbox.push(kSender, kKind, 1, {}));
  EXPECT_FALSE(mailbox.pop(Rank{4}, kKind, 1));
  EXPECT_FALSE(mailbox.pop(kSender, FrameType::kCollective, 1));
  EXPECT_TRUE(mailbox.pop(kSender, kKind, 1));
}

TEST(Mailbox, BoundsASenderAlsoWithEmptyMessages) {
  Mailbox mailbox;
  const std::vector<std::byte> half(kMaxWaitingBytes / 2);
  EXPECT_TRUE(mailbox.push(kSender, kKind, 1, half));
  EXPECT_FALSE(mailbox.push(kSender, kKind, 1, half));
  EXPECT_TRUE(mailbox.push(Rank{4}, kKind, 1, {}));
  ASSERT_TRUE(mailbox.pop(kSender, kKind, 1));
  EXPECT_TRUE(mailbox.push(kSender, kKind, 1, half));
  size_t empty = 0;
  while (mailbox.push(Rank{5}, kKind, 1, {})) ++empty;
  EXPECT_EQ(empty, kMaxWaitingBytes / kMessageCostBytes);
}

TEST(Mailbox, AClosedSenderCanStillBeRead) {
  Mailbox mailbox;
  ASSERT_TRUE(mailbox.push(kSender, kKind, 1, {}));
  mailbox.close(kSender, "first");
  mailbox.close(kSender, "second");
  EXPECT_TRUE(mailbox.pop(kSender, kKind, 1));
  ASSERT_NE(mailbox.whyClosed(kSender), nullptr);
  EXPECT_EQ(*mailbox.whyClosed(kSender), "first");
  EXPECT_EQ(mailbox.whyClosed(Rank{4}), nullptr);
}

}  // namespace
}  // namespace tutti::bootstrap
