#include "kernels/joint_copy.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <chrono>
#include <memory>
#include <new>
#include <span>
#include <thread>
#include <vector>

#include "base/futex.h"
#include "base/rng.h"
#include "kernels/joint_copy_testing.h"

namespace tutti::kernels {
namespace {

constexpr size_t kBytes = 300'001;
constexpr uint64_t kSerial = 3;
constexpr size_t kUnit = wire::kJointBlockUnit;

// Maps one segment, which is memory of this process, where it may.
class OneSegment final : public wire::SegmentMapper {
 public:
  OneSegment(uint64_t serial, std::span<std::byte> memory) : serial_(serial), memory_(memory) {}
  bool map(const wire::Announcement& announcement) override {
    ++asked;
    isMapped_ = mayMap && announcement.serial == serial_ && announcement.bytes == memory_.size();
    return isMapped_;
  }
  std::byte* find(const wire::SharedReference& reference, size_t bytes) const override {
    if (!isMapped_ || reference.serial != serial_) return nullptr;
    if (reference.offset > memory_.size() || bytes > memory_.size() - reference.offset)
      return nullptr;
    return memory_.data() + reference.offset;
  }

  bool mayMap = true;
  int asked = 0;

 private:
  uint64_t serial_;
  std::span<std::byte> memory_;
  bool isMapped_ = false;
};

// A link whose ends are both of this process.
class JointCopyTest : public JointLinkTest {
 protected:
  static bool never() { return false; }

  JointCopyTest() : JointLinkTest(kBytes, 2) {
    sender_.mapper = &segments_;
    sender_.targets = &targets_;
  }

  void publish() {
    if (GetParam() != Way::kMapped) return wire::publishReference(sender_, sent_.data(), kBytes, 1);
    const auto address = reinterpret_cast<uint64_t>(sent_.data());
    wire::publishShared(sender_, {.serial = 1, .offset = 0, .address = address}, kBytes, 1);
  }
  wire::SharedSegment segment() {
    if (GetParam() != Way::kMapped) return {};
    return {.serial = kSerial, .start = received_.data(), .bytes = received_.size()};
  }
  void open() { receive_.open(receiver_, sent_.data(), received_.data(), segment()); }
  // A block, which it does not write.
  void takeAsSender() {
    wire::takeBlock(wire::jointOf(sender_.view, 0), wire::JointEnd::kSender, kBytes, kUnit);
  }

  OneSegment segments_{kSerial, received_};
  wire::SegmentLedger targets_{kBytes};
};

// So many times as long for the receiver's bytes as for the sender's.
void learn(wire::JointPace& pace, uint64_t factor, int messages) {
  for (int message = 0; message < messages; ++message)
    pace.learn({.bytes = 1000, .nanoseconds = 100 * factor}, {.bytes = 1000, .nanoseconds = 100});
}

TEST(JointPace, BothEndsTakeHalvesUntilOneIsMuchSlower) {
  wire::JointPace pace;
  learn(pace, 1, 20);
  pace.learn({.bytes = 1000, .nanoseconds = 140}, {.bytes = 1000, .nanoseconds = 100});
  EXPECT_EQ(pace.receiverBytes(128_KiB), 64_KiB);
  EXPECT_EQ(pace.senderBytes(128_KiB), 64_KiB);
  EXPECT_EQ(pace.receiverBytes(16_MiB), 256_KiB);
}

TEST(JointPace, TheSlowerEndTakesLess) {
  wire::JointPace pace;
  learn(pace, 3, 4);
  EXPECT_EQ(pace.receiverBytes(128_KiB), 32_KiB);
  EXPECT_EQ(pace.senderBytes(128_KiB), 96_KiB);
  learn(pace, 1, 4);
  EXPECT_EQ(pace.receiverBytes(128_KiB), 64_KiB);
  for (int message = 0; message < 4; ++message)
    pace.learn({.bytes = 1000, .nanoseconds = 100}, {.bytes = 1000, .nanoseconds = 300});
  EXPECT_EQ(pace.receiverBytes(128_KiB), 96_KiB);
  EXPECT_EQ(pace.senderBytes(128_KiB), 32_KiB);
}

// It did not move for some other reason.
TEST(JointPace, OneMessageThatTookForeverChangesLittle) {
  wire::JointPace pace;
  learn(pace, 1'000'000, 1);
  learn(pace, 1, 3);
  EXPECT_EQ(pace.receiverBytes(128_KiB), 64_KiB);
}

TEST(JointPace, AnEndThatTookNothingTellsNothing) {
  wire::JointPace pace;
  learn(pace, 3, 4);
  pace.learn({}, {.bytes = 1000, .nanoseconds = 100});
  EXPECT_EQ(pace.receiverBytes(128_KiB), 32_KiB);
  for (int message = 0; message < 4; ++message) pace.learn({.bytes = 1000, .nanoseconds = 100}, {});
  EXPECT_EQ(pace.receiverBytes(128_KiB), 64_KiB) << "a receiver left alone reads large blocks";
}

// Whoever takes what, and in which order.
TEST(JointBlock, CoverTheMessage) {
  SeededRng rng(1);
  for (const size_t bytes : {65536u, 65537u, 131071u, 524288u, 16777217u}) {
    for (int round = 0; round < 50; ++round) {
      wire::JointCopy joint{};
      size_t front = 0;
      size_t back = bytes;
      while (front < back) {
        const bool isSender = rng.below(2) == 0;
        const size_t wanted = kUnit * (2 + rng.below(40));
        const wire::JointBlock block = wire::takeBlock(
            joint, isSender ? wire::JointEnd::kSender : wire::JointEnd::kReceiver, bytes, wanted);
        ASSERT_GT(block.bytes, 0u);
        ASSERT_LT(block.bytes, wanted + 2 * kUnit);
        if (isSender) {
          ASSERT_EQ(block.offset, front);
          front += block.bytes;
        } else {
          ASSERT_EQ(block.offset + block.bytes, back);
          back = block.offset;
        }
      }
      EXPECT_EQ(front, back);
      for (const wire::JointEnd end : {wire::JointEnd::kSender, wire::JointEnd::kReceiver})
        EXPECT_EQ(wire::takeBlock(joint, end, bytes, kUnit).bytes, 0u);
    }
  }
}

TEST_P(JointCopyTest, TheReceiverAloneIsEnough) {
  publish();
  open();
  EXPECT_EQ(receive_.poll().value(), Progress::kDone);
  EXPECT_FALSE(receive_.isOpen());
  EXPECT_TRUE(isAllThere());
  EXPECT_FALSE(helpReceiver(sender_));
}

TEST_P(JointCopyTest, TheSenderWritesOnlyWhenAskedTo) {
  publish();
  EXPECT_FALSE(helpReceiver(sender_));
  open();
  size_t written = 0;
  while (helpReceiver(sender_)) ++written;
  EXPECT_EQ(written, 2u);
  EXPECT_EQ(receive_.poll().value(), Progress::kDone);
  EXPECT_TRUE(isAllThere());
}

TEST_P(JointCopyTest, BothAtOnce) {
  for (int round = 0; round < 50; ++round) {
    std::fill(received_.begin(), received_.end(), std::byte{0x5a});
    std::thread sender([&] {
      publish();
      while (!wire::isDrained(sender_)) {
        if (!helpReceiver(sender_)) std::this_thread::yield();
      }
    });
    while (!wire::hasMessage(receiver_)) std::this_thread::yield();
    open();
    while (receive_.poll().value() != Progress::kDone) std::this_thread::yield();
    EXPECT_TRUE(isAllThere());
    wire::release(receiver_);
    sender.join();
  }
}

// What each took, and how long, is what the receiver learns from.
TEST_P(JointCopyTest, TheSlowerEndsBlocksGrowShorter) {
  const size_t half = receiver_.jointPace.senderBytes(kBytes);
  for (int message = 0; message < 12; ++message) {
    publish();
    open();
    EXPECT_TRUE(helpReceiver(sender_));
    wire::JointCopy& joint = wire::jointOf(sender_.view, receiver_.next);
    EXPECT_EQ(joint.senderNanoseconds != 0, wire::JointPace::isTimed(receiver_.next));
    if (joint.senderNanoseconds != 0) joint.senderNanoseconds = 1'000'000'000;
    EXPECT_EQ(receive_.poll().value(), Progress::kDone);
    EXPECT_TRUE(isAllThere());
    wire::release(receiver_);
  }
  EXPECT_LT(receiver_.jointPace.senderBytes(kBytes), half / 2);
  publish();
  open();
  std::fill(received_.begin(), received_.begin() + kBytes, std::byte{0x5a});
  EXPECT_TRUE(helpReceiver(sender_));
  EXPECT_EQ(received_[half - 1], std::byte{0x5a}) << "the sender hears of it";
  EXPECT_EQ(receive_.poll().value(), Progress::kDone);
  EXPECT_TRUE(isAllThere());
}

// Call by call each end has the same bytes in its caches.
TEST_P(JointCopyTest, TheSenderBeginsInFrontAndTheReceiverBehind) {
  publish();
  open();
  EXPECT_TRUE(helpReceiver(sender_));
  const size_t front = receiver_.jointPace.senderBytes(kBytes);
  EXPECT_TRUE(std::equal(sent_.begin(), sent_.begin() + front, received_.begin()));
  const auto isUntouched = [](std::byte byte) { return byte == std::byte{0x5a}; };
  EXPECT_TRUE(std::all_of(received_.begin() + front, received_.end(), isUntouched));
  EXPECT_EQ(receive_.poll().value(), Progress::kDone);
  EXPECT_TRUE(isAllThere());
}

TEST_P(JointCopyTest, AWithdrawnReceiverIsWrittenToNoMore) {
  publish();
  open();
  EXPECT_TRUE(helpReceiver(sender_));
  receive_.withdraw(never);
  EXPECT_FALSE(receive_.isOpen());
  const std::vector<std::byte> before = received_;
  EXPECT_FALSE(helpReceiver(sender_));
  EXPECT_EQ(received_, before);
}

// However long that takes: the memory is somebody else's afterwards.
TEST_P(JointCopyTest, AWithdrawnReceiverAwaitsTheBlockThatIsBeingWritten) {
  publish();
  open();
  wire::JointCopy& joint = wire::jointOf(sender_.view, 0);
  takeAsSender();
  std::thread sender([&] {
    sleepFor(std::chrono::milliseconds(300));
    received_[0] = std::byte{1};
    joint.answered.store(kUnit, std::memory_order_release);
  });
  receive_.withdraw([] {
    std::this_thread::yield();
    return true;
  });
  EXPECT_EQ(received_[0], std::byte{1});
  sender.join();
}

TEST_P(JointCopyTest, AWithdrawnReceiverLeavesAWriterThatNeverEnds) {
  publish();
  open();
  takeAsSender();
  int asked = 0;
  receive_.withdraw([&] { return ++asked < 5; });
  EXPECT_EQ(asked, 5);
  EXPECT_FALSE(receive_.isOpen());
}

INSTANTIATE_TEST_SUITE_P(Memory, JointCopyTest,
                         testing::Values(Way::kKernel, Way::kOneProcess, Way::kMapped),
                         [](const auto& test) {
                           switch (test.param) {
                             case Way::kKernel: return "ThroughTheKernel";
                             case Way::kOneProcess: return "OfOneProcess";
                             case Way::kMapped: return "Mapped";
                           }
                           return "";
                         });

TEST_P(JointCopyTest, TheNextMessageIsWrittenBeforeItsTurn) {
  publish();
  publish();
  open();
  receive_.openAhead(received_.data(), segment());
  EXPECT_EQ(receive_.ahead(), 1u);
  EXPECT_EQ(receive_.poll().value(), Progress::kDone);
  std::fill(received_.begin(), received_.end(), std::byte{0x5a});
  EXPECT_TRUE(helpReceiver(sender_));
  EXPECT_TRUE(helpReceiver(sender_));
  wire::release(receiver_);
  open();
  EXPECT_EQ(receive_.ahead(), 0u);
  EXPECT_EQ(receive_.poll().value(), Progress::kDone);
  EXPECT_TRUE(isAllThere());
}

TEST_P(JointCopyTest, AWithdrawnReceiverIsWrittenNoMessageAheadEither) {
  publish();
  publish();
  open();
  receive_.openAhead(received_.data(), segment());
  EXPECT_TRUE(helpReceiver(sender_));
  receive_.withdraw(never);
  EXPECT_EQ(receive_.ahead(), 0u);
  EXPECT_FALSE(helpReceiver(sender_));
}

using KernelJointCopyTest = JointCopyTest;
INSTANTIATE_TEST_SUITE_P(Memory, KernelJointCopyTest, testing::Values(Way::kKernel));

// The sender never had it.
TEST_P(KernelJointCopyTest, NobodyAwaitsABlockThatTheReceiverCouldNotRead) {
  publish();
  receiver_.senderProcess = -1;
  open();
  EXPECT_FALSE(receive_.poll().ok());
  receive_.withdraw([] {
    ADD_FAILURE();
    return false;
  });
}

using MappedJointCopyTest = JointCopyTest;
INSTANTIATE_TEST_SUITE_P(Memory, MappedJointCopyTest, testing::Values(Way::kMapped));

// Handing it over costs as much as some copies do.
TEST_P(MappedJointCopyTest, TheReceiversSegmentIsMappedOnceThatPays) {
  targets_ = wire::SegmentLedger(2 * kBytes);
  for (const bool pays : {false, true}) {
    publish();
    open();
    EXPECT_EQ(helpReceiver(sender_), pays);
    EXPECT_EQ(segments_.asked, pays ? 1 : 0);
    EXPECT_EQ(receive_.poll().value(), Progress::kDone);
    EXPECT_TRUE(isAllThere());
    wire::release(receiver_);
  }
}

TEST_P(MappedJointCopyTest, WhatCannotBeMappedIsAskedForOnceAndLeftToTheReceiver) {
  segments_.mayMap = false;
  publish();
  open();
  EXPECT_FALSE(helpReceiver(sender_));
  EXPECT_FALSE(helpReceiver(sender_));
  EXPECT_EQ(segments_.asked, 1);
  EXPECT_EQ(receive_.poll().value(), Progress::kDone);
  EXPECT_TRUE(isAllThere());
}

TEST_P(MappedJointCopyTest, ACountBehindTheMessagesEndIsNotFollowed) {
  publish();
  open();
  wire::jointOf(sender_.view, 0).taken.store(kBytes + 1);
  const std::vector<std::byte> before = received_;
  EXPECT_FALSE(helpReceiver(sender_));
  EXPECT_EQ(received_, before);
}

TEST_P(MappedJointCopyTest, ATargetThatEndsBehindItsSegmentIsNotWritten) {
  publish();
  open();
  wire::jointOf(sender_.view, 0).offset = kGuard + 1;
  EXPECT_FALSE(helpReceiver(sender_));
  EXPECT_EQ(receive_.poll().value(), Progress::kDone);
  EXPECT_TRUE(isAllThere());
}

// A link of one process, whose receiver reads directly, with one message.
struct ReadableLink {
  ReadableLink() {
    sender.view = receiver.view = wire::viewLink(memory, {.slotCount = 2, .slotBytes = 128});
    receiver.isSenderHere = true;
  }
  void publishAndOpen() {
    wire::publishReference(sender, sent.data(), kBytes, 1);
    receive.open(receiver, sent.data(), received.data());
  }

  alignas(64) std::byte memory[2048] = {};
  wire::LinkPort sender;
  wire::LinkPort receiver;
  const std::vector<std::byte> sent = std::vector<std::byte>(kBytes, std::byte{7});
  std::vector<std::byte> received = std::vector<std::byte>(kBytes);
  JointReceive receive;
};

// What the sender may not write, the receiver reads after all.
TEST(JointCopy, ABlockThatCannotBeWrittenIsRead) {
  ReadableLink link;
  link.sender.receiverProcess = -1;
  link.sender.mayWrite = true;
  link.publishAndOpen();
  EXPECT_TRUE(helpReceiver(link.sender));
  EXPECT_FALSE(link.sender.mayWrite);
  EXPECT_FALSE(helpReceiver(link.sender));
  EXPECT_EQ(link.receive.poll().value(), Progress::kDone);
  EXPECT_EQ(link.received, link.sent);
}

// The wait ends with the block that is missing.
TEST(JointCopy, TheReceiverWaitsForTheBlockThatTheSenderTook) {
  ReadableLink link;
  link.publishAndOpen();
  wire::JointCopy& joint = wire::jointOf(link.sender.view, 0);
  wire::takeBlock(joint, wire::JointEnd::kSender, kBytes, kUnit);
  EXPECT_EQ(link.receive.poll().value(), Progress::kIdle);
  const FutexPoint wait = link.receive.wait();
  EXPECT_EQ(wait.word, &joint.answered);
  EXPECT_EQ(wait.seen, 0u);
  EXPECT_FALSE(link.receive.isAnswered());
  joint.answered.store(kUnit);
  EXPECT_TRUE(link.receive.isAnswered());
  EXPECT_NE(link.receive.wait().seen, kUnit);
  EXPECT_EQ(link.receive.poll().value(), Progress::kDone);
}

}  // namespace
}  // namespace tutti::kernels
