// Messages whose receiver has offered a place, and whose sender writes its part there at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "base/futex.h"
#include "kernels/execution_testing.h"
#include "kernels/joint_copy.h"
#include "kernels/joint_copy_testing.h"
#include "wire/placed_result.h"

namespace tutti::kernels {
namespace {

constexpr uint32_t kBytes = 100'001;
constexpr uint32_t kSignature = 7;

// Maps segments of this process, by their serials.
class OwnSegments final : public wire::SegmentMapper {
 public:
  void add(const wire::SharedSegment& segment) { known_[segment.serial] = segment; }
  bool map(const wire::Announcement& announcement) override {
    ++asked;
    const auto found = known_.find(announcement.serial);
    const bool isKnown = found != known_.end() && found->second.bytes == announcement.bytes &&
                         found->second.token == announcement.token;
    if (isKnown) mapped_[announcement.serial] = found->second;
    return isKnown;
  }
  std::byte* find(const wire::SharedReference& reference, size_t bytes) const override {
    const auto found = mapped_.find(reference.serial);
    if (found == mapped_.end()) return nullptr;
    const wire::SharedSegment& segment = found->second;
    if (reference.offset > segment.bytes || bytes > segment.bytes - reference.offset)
      return nullptr;
    return const_cast<std::byte*>(segment.start) + reference.offset;
  }

  int asked = 0;

 private:
  std::map<uint64_t, wire::SharedSegment> known_;
  std::map<uint64_t, wire::SharedSegment> mapped_;
};

class DividedCopyTest : public JointLinkTest {
 protected:
  DividedCopyTest() : JointLinkTest(kBytes, 4) {
    sender_.mapper = &segments_;
    sender_.targets = &targets_;
    segments_.add(segment());
  }

  wire::SharedSegment segment() const {
    if (GetParam() != Way::kMapped) return {};
    wire::SharedSegment segment{.serial = 3, .start = received_.data(), .bytes = received_.size()};
    segment.token.fill(std::byte{0x42});
    return segment;
  }
  wire::MessageKind kind() const {
    return GetParam() == Way::kMapped ? wire::MessageKind::kShared : wire::MessageKind::kReference;
  }
  void offer() {
    std::fill(received_.begin(), received_.end(), std::byte{0x5a});
    JointReceive::offer(receiver_, kBytes, kSignature, received_.data(), segment());
  }
  JointSend divide() { return {sender_, sent_.data(), kBytes, kSignature, kind()}; }
  void publish(uint32_t flags) {
    const auto address = reinterpret_cast<uint64_t>(sent_.data());
    if (GetParam() == Way::kMapped) {
      wire::publishShared(sender_, {.serial = 1, .offset = 0, .address = address}, kBytes,
                          kSignature, flags);
    } else {
      wire::publishReference(sender_, sent_.data(), kBytes, kSignature, flags);
    }
  }
  void open() { receive_.open(receiver_, sent_.data(), received_.data(), segment()); }
  // Offered, sent and received.
  void finish() {
    open();
    ASSERT_EQ(receive_.poll().value(), Progress::kDone);
    EXPECT_TRUE(isAllThere());
    wire::release(receiver_);
  }
  wire::JointOffer& offered() { return receiver_.view.control->jointOffer; }

  OwnSegments segments_;
  wire::SegmentLedger targets_;
};
INSTANTIATE_TEST_SUITE_P(Memory, DividedCopyTest,
                         testing::Values(Way::kKernel, Way::kOneProcess, Way::kMapped),
                         [](const auto& test) {
                           switch (test.param) {
                             case Way::kKernel: return "ThroughTheKernel";
                             case Way::kOneProcess: return "OfOneProcess";
                             case Way::kMapped: return "Mapped";
                           }
                           return "";
                         });

TEST_P(DividedCopyTest, TheSendersPartIsWrittenBeforeTheReceiverLooks) {
  for (int message = 0; message < 10; ++message) {
    offer();
    JointSend half = divide();
    ASSERT_EQ(half.flags(), wire::kIsDivided);
    publish(half.flags());
    half.write(sender_);
    const auto part = static_cast<ptrdiff_t>(receiver_.offeredBytes);
    ASSERT_GT(part, 0);
    ASSERT_LT(part, kBytes);
    EXPECT_TRUE(std::equal(sent_.begin(), sent_.begin() + part, received_.begin()));
    EXPECT_EQ(received_[static_cast<size_t>(part)], std::byte{0x5a}) << "that is the receiver's";
    EXPECT_FALSE(helpReceiver(sender_)) << "nothing is left";
    finish();
  }
}

TEST_P(DividedCopyTest, BothAtOnce) {
  for (int message = 0; message < 50; ++message) {
    offer();
    std::thread sender([&] {
      JointSend half = divide();
      publish(half.flags());
      half.write(sender_);
      while (!wire::isDrained(sender_)) std::this_thread::yield();
    });
    while (!wire::hasMessage(receiver_)) std::this_thread::yield();
    open();
    while (receive_.poll().value() != Progress::kDone) std::this_thread::yield();
    EXPECT_TRUE(isAllThere());
    wire::release(receiver_);
    sender.join();
  }
}

// A receiver that is through offers the next place while a late sender looks at the last one.
TEST_P(DividedCopyTest, AnOfferIsReadWholeOrNotAtAll) {
  std::atomic<bool> isOver = false;
  std::thread reader([&] {
    uint64_t number = 0;
    while (!isOver.load()) {
      wire::JointTarget target;
      if (!offered().read(number++ % 64, wire::JointOffer::describe(kBytes, kSignature), target))
        continue;
      EXPECT_EQ(target.address % 64, target.offset);
      EXPECT_EQ(target.address % 64, target.senderBytes);
    }
  });
  for (int round = 0; round < 20'000; ++round) {
    const uint64_t number = static_cast<uint64_t>(round) % 64;
    offered().write(number, wire::JointOffer::describe(kBytes, kSignature),
                    {.address = number, .offset = number, .senderBytes = uint32_t(number)});
  }
  isOver.store(true);
  reader.join();
}

TEST_P(DividedCopyTest, AnOfferIsForItsMessageAlone) {
  EXPECT_EQ(divide().flags(), 0u) << "nothing is offered";
  offer();
  EXPECT_EQ(JointSend(sender_, sent_.data(), kBytes - 1, kSignature, kind()).flags(), 0u);
  EXPECT_EQ(JointSend(sender_, sent_.data(), kBytes, kSignature + 1, kind()).flags(), 0u);
  publish(0);
  EXPECT_EQ(divide().flags(), 0u) << "it was for the message before";
  EXPECT_FALSE(wire::isBeingWritten(receiver_));
  finish();
}

TEST_P(DividedCopyTest, AReceiverThatHasFailedIsNotWrittenTo) {
  offer();
  receiver_.view.control->receiverFault = 1;
  EXPECT_EQ(divide().flags(), 0u);
  EXPECT_EQ(sender_.view.control->isWriting, 0u);
}

// Who fails waits as long as that says.
TEST_P(DividedCopyTest, ASenderSaysThatItWrites) {
  offer();
  EXPECT_FALSE(wire::isBeingWritten(receiver_));
  JointSend half = divide();
  EXPECT_TRUE(wire::isBeingWritten(receiver_));
  publish(half.flags());
  open();
  EXPECT_EQ(receive_.poll().value(), Progress::kIdle);
  receive_.withdraw([] {
    ADD_FAILURE() << "that is for who has taken blocks";
    return false;
  });
  EXPECT_TRUE(wire::isBeingWritten(receiver_));
  half.write(sender_);
  EXPECT_FALSE(wire::isBeingWritten(receiver_));
}

TEST_P(DividedCopyTest, MoreThanTheMessageHasIsNotWritten) {
  offer();
  offered().senderBytes.store(kBytes + 1);
  EXPECT_EQ(divide().flags(), 0u);
}

TEST_P(DividedCopyTest, WhatWasNeverOfferedIsReadByTheReceiver) {
  publish(wire::kIsDivided);
  finish();
}

using KernelDividedCopyTest = DividedCopyTest;
INSTANTIATE_TEST_SUITE_P(Memory, KernelDividedCopyTest, testing::Values(Way::kKernel));

TEST_P(KernelDividedCopyTest, APartThatCannotBeWrittenIsRead) {
  sender_.receiverProcess = -1;
  offer();
  JointSend half = divide();
  publish(half.flags());
  half.write(sender_);
  EXPECT_FALSE(sender_.mayWrite);
  finish();
  offer();
  EXPECT_EQ(divide().flags(), 0u) << "not tried again";
}

using MappedDividedCopyTest = DividedCopyTest;
INSTANTIATE_TEST_SUITE_P(Memory, MappedDividedCopyTest, testing::Values(Way::kMapped));

TEST_P(MappedDividedCopyTest, TheSegmentIsMappedOnceThatPays) {
  targets_ = wire::SegmentLedger(2 * kBytes);
  for (const uint32_t flags : {0u, wire::kIsDivided, wire::kIsDivided}) {
    offer();
    JointSend half = divide();
    EXPECT_EQ(half.flags(), flags);
    publish(half.flags());
    half.write(sender_);
    finish();
  }
  EXPECT_EQ(segments_.asked, 1);
}

TEST_P(MappedDividedCopyTest, APlaceThatEndsBehindItsSegmentIsNotWritten) {
  offer();
  offered().offset.store(kGuard + 1);
  EXPECT_EQ(divide().flags(), 0u);
}

// ---- of whole executions

// A broadcast by two ranks that have mapped each other's buffers.
class MappedPair {
 public:
  explicit MappedPair(size_t bytes, bool inPlace = true)
      : inPlace_(inPlace),
        cluster_({&schedule::algorithms(Collective::kBroadcast)[0], 2, 0, bytes / 8, 4}, 512_KiB) {
    for (const size_t rank : {0, 1}) {
      std::vector<int64_t>& buffer = cluster_.rank(static_cast<int32_t>(rank)).output;
      const wire::SharedSegment segment{.serial = rank + 1,
                                        .start = reinterpret_cast<const std::byte*>(buffer.data()),
                                        .bytes = buffer.size() * sizeof(int64_t),
                                        .token = {}};
      segments_.add(segment);
      shared_[rank] = {
          .input = segment, .output = segment, .referableSteps = referable_, .answeredSteps = {}};
    }
    if (!inPlace) {
      const std::vector<int64_t>& input = cluster_.rank(0).input;
      shared_[0].input = {.serial = 9,
                          .start = reinterpret_cast<const std::byte*>(input.data()),
                          .bytes = input.size() * sizeof(int64_t),
                          .token = {}};
      segments_.add(shared_[0].input);
    }
    sender.mapper = receiver.mapper = &segments_;
    sender.ledger = &ledger_;
    sender.targets = &targets_;
    SeededRng rng(1);
    for (int round = 0; round < 3; ++round) {
      start();
      EXPECT_TRUE(cluster_.run(rng));
    }
  }
  void start() {
    for (const int32_t rank : {0, 1}) {
      RankState& state = cluster_.rank(rank);
      state.isDone = false;
      std::ranges::fill(state.output, -1);
      if (rank == 0 && inPlace_) std::ranges::copy(state.input, state.output.begin());
      auto* buffer = reinterpret_cast<std::byte*>(state.output.data());
      const auto* input = reinterpret_cast<const std::byte*>(state.input.data());
      state.execution.start({.program = &state.bound,
                             .input = inPlace_ ? buffer : input,
                             .output = buffer,
                             .signature = kSignature,
                             .scratch = &state.scratch,
                             .shared = &shared_[static_cast<size_t>(rank)],
                             .isJoint = true});
    }
  }
  Cluster& cluster() { return cluster_; }
  Execution& execution(int32_t rank) { return cluster_.rank(rank).execution; }
  bool isDivided() const { return (last().flags & wire::kIsDivided) != 0; }
  const wire::MessageHead& last() const { return sender.view.message(sender.next - 1); }

 private:
  const bool inPlace_;
  Cluster cluster_;
  const std::vector<uint8_t> referable_ = std::vector<uint8_t>(8, 1);
  std::array<SharedBuffers, 2> shared_;
  OwnSegments segments_;
  wire::SegmentLedger ledger_;
  wire::SegmentLedger targets_;

 public:
  wire::LinkPort& sender = *cluster_.rank(0).outgoing[0];
  wire::LinkPort& receiver = *cluster_.rank(1).incoming[0];
};

TEST(DividedCopy, IsRightInEveryInterleaving) {
  SeededRng rng(5);
  for (const size_t bytes : {8_KiB, 16_KiB, 24_KiB, 40_KiB, 64_KiB, 512_KiB, 1600_KiB}) {
    MappedPair pair(bytes);
    int divided = 0;
    for (int round = 0; round < 40; ++round) {
      pair.start();
      ASSERT_TRUE(pair.cluster().run(rng)) << bytes;
      ASSERT_EQ(pair.last().kind, wire::MessageKind::kShared);
      pair.cluster().check();
      ASSERT_FALSE(testing::Test::HasFatalFailure()) << bytes;
      divided += pair.isDivided() ? 1 : 0;
    }
    if (bytes == 1600_KiB) continue;  // of several pieces: any
    EXPECT_EQ(divided > 0, bytes >= kDividedMinBytes) << bytes;
    EXPECT_LT(divided, 40) << "the sender comes first at times";
  }
}

TEST(DividedCopy, AReceiverThatIsThereFirstOffersAndTakesItsPartAlone) {
  MappedPair pair(40_KiB);
  pair.start();
  EXPECT_EQ(pair.execution(1).poll().value(), Progress::kIdle);
  EXPECT_TRUE(pair.execution(1).hasOffered()) << "who fails has to wait for who writes";
  EXPECT_EQ(pair.execution(0).poll().value(), Progress::kAdvanced);
  EXPECT_TRUE(pair.isDivided());
  EXPECT_EQ(pair.execution(1).poll().value(), Progress::kDone);
  EXPECT_EQ(pair.execution(0).poll().value(), Progress::kDone);
  pair.cluster().check();
}

// While the receiver reads, which need not wait for it.
TEST(DividedCopy, ASenderThatHasACopyOfItsOwnToMakeMakesThat) {
  MappedPair pair(40_KiB, false);
  pair.start();
  EXPECT_EQ(pair.execution(1).poll().value(), Progress::kIdle);
  EXPECT_EQ(pair.execution(0).poll().value(), Progress::kAdvanced);
  ASSERT_EQ(pair.last().kind, wire::MessageKind::kShared);
  EXPECT_FALSE(pair.isDivided());
  EXPECT_EQ(pair.execution(1).poll().value(), Progress::kDone);
  EXPECT_EQ(pair.execution(0).poll().value(), Progress::kDone);
  pair.cluster().check();
}

// The memory is the caller's again.
TEST(DividedCopy, AReceiverThatHasFailedIsLeftAlone) {
  MappedPair pair(40_KiB);
  pair.start();
  EXPECT_EQ(pair.execution(1).poll().value(), Progress::kIdle);
  pair.receiver.view.control->receiverFault = 1;
  EXPECT_TRUE(pair.execution(0).poll().ok());
  EXPECT_FALSE(pair.isDivided());
  const std::vector<int64_t>& output = pair.cluster().rank(1).output;
  EXPECT_EQ(std::ranges::count(output, -1), static_cast<ptrdiff_t>(output.size()));
}

}  // namespace
}  // namespace tutti::kernels
