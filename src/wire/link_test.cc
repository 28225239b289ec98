// A link with short and long slots, by one thread that is now its sender, now its receiver.
#include "wire/link.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <new>
#include <queue>
#include <vector>

#include "base/rng.h"

namespace tutti::wire {
namespace {

constexpr LinkGeometry kGeometry{.slotCount = 8, .slotBytes = 2 * kShortBytes, .shortCount = 32};

class BothEnds {
 public:
  BothEnds() : memory_(new (std::align_val_t{kCacheLineBytes}) std::byte[linkBytes(kGeometry)]()) {
    sender_.view = receiver_.view = viewLink(memory_.get(), kGeometry);
  }

  bool send(size_t bytes) {
    if (!hasFreeSlot(sender_, bytes)) return false;
    std::fill_n(payloadToFill(sender_, bytes), bytes, patternOf(sender_.next));
    publish(sender_, static_cast<uint32_t>(bytes), 1);
    underWay_.push(bytes);
    return true;
  }
  size_t sendAll(size_t bytes) {
    size_t sent = 0;
    while (send(bytes)) ++sent;
    return sent;
  }
  bool receive() {
    if (!hasMessage(receiver_)) return false;
    const size_t bytes = underWay_.front();
    underWay_.pop();
    EXPECT_EQ(receiver_.view.message(receiver_.next).bytes, bytes);
    const std::byte* payload = receivedPayload(receiver_, bytes);
    const std::byte wanted = patternOf(receiver_.next);
    EXPECT_TRUE(std::all_of(payload, payload + bytes, [=](std::byte b) { return b == wanted; }))
        << "message " << receiver_.next << " of " << bytes << " bytes";
    release(receiver_);
    return true;
  }
  void realign() { releaseAll(receiver_); }
  void receiveAll() {
    while (receive()) {
    }
    EXPECT_TRUE(underWay_.empty());
  }

 private:
  struct Freed {
    void operator()(std::byte* memory) const {
      ::operator delete[](memory, std::align_val_t{kCacheLineBytes});
    }
  };
  static std::byte patternOf(uint64_t number) { return static_cast<std::byte>(number * 37 + 1); }

  std::unique_ptr<std::byte[], Freed> memory_;
  LinkPort sender_;
  LinkPort receiver_;
  std::queue<size_t> underWay_;
};

TEST(Link, ShortMessagesRunFurtherAheadThanLongOnes) {
  BothEnds link;
  EXPECT_EQ(link.sendAll(kShortBytes), 32u);
  link.receiveAll();
  EXPECT_EQ(link.sendAll(kShortBytes + 64), 8u);
  EXPECT_EQ(link.sendAll(8), 24u);
  link.receiveAll();
}

// What schedules count on (capacity()), whatever came before and has been read.
TEST(Link, WhoHasReadAllNeverKeepsTheSenderWaiting) {
  SeededRng rng(1);
  BothEnds link;
  for (int round = 0; round < 5000; ++round) {
    const size_t bytes = rng.below(2) == 0 ? rng.below(100) : kShortBytes + rng.below(kShortBytes);
    for (uint32_t i = 0; i < capacity(kGeometry.slotCount); ++i)
      ASSERT_TRUE(link.send(bytes)) << "round " << round << ", message " << i;
    link.receiveAll();
  }
}

// A sender finds links that carried unlike many messages before full after as many from then on.
TEST(Link, WhatWasCarriedBeforeIsForgottenOnceAllIsGivenBack) {
  for (const size_t bytes : {size_t{8}, size_t{kShortBytes + 1}}) {
    std::vector<size_t> sent;
    for (const int before : {0, 1, 3, 5}) {
      BothEnds link;
      for (int i = 0; i < before; ++i) EXPECT_TRUE(link.send(bytes));
      link.receiveAll();
      link.realign();
      EXPECT_EQ(link.sendAll(bytes), bytes == 8 ? 32U : 8U) << "all is free after " << before;
      EXPECT_TRUE(link.receive() && link.receive() && link.receive());
      EXPECT_FALSE(link.send(bytes)) << "three of a ring's half are not given back";
      while (!link.send(bytes)) EXPECT_TRUE(link.receive());
      sent.push_back(1 + link.sendAll(bytes));
    }
    EXPECT_EQ(sent, std::vector<size_t>(sent.size(), sent.front()));
  }
}

TEST(Link, MessagesOfAllLengthsArriveWhole) {
  SeededRng rng(2);
  BothEnds link;
  for (int step = 0; step < 50'000; ++step) {
    if (rng.below(2) == 0) {
      constexpr size_t kLengths[] = {
          0, 8, kInlineBytes, kInlineBytes + 1, kShortBytes, kShortBytes + 1, 2 * kShortBytes};
      link.send(kLengths[rng.below(std::size(kLengths))]);
    } else {
      link.receive();
    }
  }
  link.receiveAll();
}

}  // namespace
}  // namespace tutti::wire
