// Pumps over a virtual network, with a clock of the test's own: any interleaving of the rank's
// thread, the provider's thread and the wire, replayed by seed.
#include "transport/net/pump.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <type_traits>
#include <vector>

#include "base/mapping.h"
#include "base/rng.h"
#include "transport/net/bare_provider_testing.h"

namespace tutti::transport::net {
namespace {

using tutti::net::Connection;

using tutti::net::Label;
using tutti::net::Readiness;

// What is under way in one direction.
struct Wire {
  struct Message {
    Label label;
    std::vector<std::byte> payload;
  };
  std::deque<Message> messages;
  size_t capacity = 3;
  bool isCut = false;
  bool isLate = false;  // its payloads are
  bool isReaderStopped = false;
};

class VirtualConnection final : public Connection {
 public:
  VirtualConnection(Wire& out, Wire& in) : out_(out), in_(in) {}

  Progress send(const Label& label, std::span<const std::byte> payload) override {
    if (taken_.size() == 4) return Progress::kIdle;
    taken_.push_back({label, payload});
    return Progress::kAdvanced;
  }
  Result<Progress> flush() override {
    if (out_.isCut) return Status(Code::kRemoteError, "the wire was cut");
    while (!taken_.empty() && out_.messages.size() < out_.capacity) {
      const auto& [label, payload] = taken_.front();
      out_.messages.push_back({label, {payload.begin(), payload.end()}});
      taken_.pop_front();
      ++sent_;
    }
    return taken_.empty() ? Progress::kDone : Progress::kIdle;
  }
  uint64_t sentCount() const override { return sent_; }
  void keepCopies(std::span<const std::byte>) override {
    for (Taken& each : taken_) {
      copies_.emplace_back(each.payload.begin(), each.payload.end());
      each.payload = copies_.back();
    }
  }
  void stop() override { in_.isReaderStopped = true; }
  Result<Progress> receiveLabel(Label& label) override {
    EXPECT_FALSE(in_.isReaderStopped);
    if (in_.messages.empty()) {
      if (in_.isCut) return Status(Code::kRemoteError, "the wire was cut");
      return Progress::kIdle;
    }
    label = in_.messages.front().label;
    return Progress::kDone;
  }
  Result<Progress> receivePayload(std::span<std::byte> payload) override {
    EXPECT_FALSE(in_.isReaderStopped);
    if (++lateness_ % 3 == 0 || in_.isLate) return Progress::kIdle;
    EXPECT_EQ(payload.size(), in_.messages.front().payload.size());
    if (!payload.empty())
      std::memcpy(payload.data(), in_.messages.front().payload.data(), payload.size());
    in_.messages.pop_front();
    return Progress::kDone;
  }

  bool isReady(const Readiness& readiness) const {
    return (readiness.toReceive && (!in_.messages.empty() || in_.isCut)) ||
           (readiness.toSend && (out_.messages.size() < out_.capacity || out_.isCut));
  }

 private:
  struct Taken {
    Label label;
    std::span<const std::byte> payload;
  };
  Wire& out_;
  Wire& in_;
  std::deque<Taken> taken_;
  std::deque<std::vector<std::byte>> copies_;
  uint64_t sent_ = 0;
  uint32_t lateness_ = 0;
};

// Its service thread is step().
class VirtualProvider final : public BareProvider {
 public:
  VirtualProvider() : BareProvider({.name = "virtual"}) {}
  Result<uint64_t> watch(Connection& connection, const Readiness& readiness,
                         std::shared_ptr<tutti::net::Worker> worker) override {
    for (const auto& [number, watched] : watches_) EXPECT_NE(watched.connection, &connection);
    watches_[++last_] = {static_cast<VirtualConnection*>(&connection), readiness, worker};
    return last_;
  }
  void unwatch(uint64_t watch) override { watches_.erase(watch); }

  // Serves one connection that is ready; false when none is.
  bool step() {
    for (auto at = watches_.begin(); at != watches_.end(); ++at) {
      if (!at->second.connection->isReady(at->second.readiness)) continue;
      const auto [number, watched] = *at;
      watches_.erase(at);
      watched.worker->work(number);
      return true;
    }
    return false;
  }
  size_t watchCount() const { return watches_.size(); }

 private:
  struct Watched {
    VirtualConnection* connection = nullptr;
    Readiness readiness;
    std::shared_ptr<tutti::net::Worker> worker;  // shared with the test
  };
  std::map<uint64_t, Watched> watches_;
  uint64_t last_ = 0;
};

constexpr wire::LinkGeometry kGeometry{.slotCount = 4, .slotBytes = 128};

// One side: the ring, the rank's port to it, and the pump.
template <typename PumpKind>
struct Side {
  explicit Side(Clock& clock, Wire& out, Wire& in)
      : memory(::mmap(nullptr, wire::linkBytes(kGeometry), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
               wire::linkBytes(kGeometry)),
        port{.view = wire::viewLink(memory.get(), kGeometry)},
        pump(std::make_shared<PumpKind>(Pump::Options{.ring = port.view,
                                                      .provider = provider,
                                                      .clock = clock,
                                                      .patience = std::chrono::seconds(1)})) {
    if constexpr (std::is_same_v<PumpKind, ReceivePump>) port.landing = &pump->landing();
    pump->arrived(std::make_unique<VirtualConnection>(out, in));
  }
  ~Side() {
    // Aborted: a clock that stands still would let it wait for ever.
    for (auto* fault : {&port.view.control->senderFault, &port.view.control->receiverFault})
      fault->store(static_cast<uint32_t>(wire::LinkFault::kAborted));
    pump->close();
  }

  // The rank's thread: polls, goes to sleep, or goes on to other things.
  void act(uint64_t what) {
    if (what == 0) pump->attend();
    if (what == 1) pump->settle();
    if (what > 1) pump->run();
  }

  VirtualProvider provider;
  UniqueMapping memory;
  wire::LinkPort port;
  std::shared_ptr<PumpKind> pump;  // shared with the provider
};

class Link : public testing::Test {
 protected:
  static uint32_t bytesOf(uint64_t number) {
    return static_cast<uint32_t>((number * 37) % (kGeometry.slotBytes + 1));
  }
  static std::byte fillOf(uint64_t number) { return static_cast<std::byte>(number & 0xff); }

  // Each third message that is long enough names memory of the program's, which the program uses
  // for other things once the link's head has passed it.
  bool sendOne() {
    wire::LinkPort& port = sender_.port;
    if (!wire::hasFreeSlot(port, 0)) return false;
    const uint64_t number = port.next;
    const uint32_t bytes = bytesOf(number);
    const auto signature = static_cast<uint32_t>(number);
    std::vector<std::byte>& memory = sent_[number % sent_.size()];
    memory.assign(bytes, fillOf(number));
    if (number % 3 == 0 && bytes > wire::kInlineBytes) {
      wire::publishReference(port, memory.data(), bytes, signature);
      return true;
    }
    if (bytes > 0) std::memcpy(port.view.payload(number, bytes), memory.data(), bytes);
    wire::publish(port, bytes, signature);
    return true;
  }
  // Offers every other message a place before it comes.
  bool takeOne() {
    wire::LinkPort& port = receiver_.port;
    const uint32_t bytes = bytesOf(port.next);
    if (!wire::hasMessage(port)) {
      if (port.next % 2 == 0 && bytes > 0)
        wire::offerLanding(port, landed_.data(), bytes, static_cast<uint32_t>(port.next));
      return false;
    }
    const wire::MessageHead& head = port.view.message(port.next);
    EXPECT_EQ(head.bytes, bytes);
    EXPECT_EQ(head.signature, port.next);
    const bool hasLanded = head.kind == wire::MessageKind::kLanded;
    landedCount_ += hasLanded ? 1 : 0;
    const std::byte* payload = hasLanded ? landed_.data() : port.view.payload(port.next, bytes);
    for (uint32_t i = 0; i < bytes; ++i) EXPECT_EQ(payload[i], fillOf(port.next));
    wire::release(port);
    return true;
  }
  wire::LinkFault faultAt(const std::atomic<uint32_t>& word) {
    return static_cast<wire::LinkFault>(word.load());
  }
  void leaveSender(wire::LinkFault fault, const Parting& parting) {
    sender_.port.view.control->senderFault.store(static_cast<uint32_t>(fault));
    sender_.pump->leave(parting);
  }

  ManualClock clock_;
  Wire forth_;
  Wire back_;
  Side<SendPump> sender_{clock_, forth_, back_};
  Side<ReceivePump> receiver_{clock_, back_, forth_};
  // As many as there are slots: by then the head has passed.
  std::array<std::vector<std::byte>, kGeometry.slotCount> sent_;
  std::array<std::byte, kGeometry.slotBytes> landed_{};
  int landedCount_ = 0;
};

TEST_F(Link, BringsEveryMessageInOrderWhoeverDoesTheWork) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SeededRng rng(seed);
    const uint64_t target = sender_.port.next + 40;
    for (int i = 0; i < 2000 && receiver_.port.next < target; ++i) {
      switch (rng.below(6)) {
        case 0:
          if (sender_.port.next < target) sendOne();
          break;
        case 1: takeOne(); break;
        case 2: sender_.act(rng.below(4)); break;
        case 3: receiver_.act(rng.below(4)); break;
        case 4: sender_.provider.step(); break;
        default: receiver_.provider.step(); break;
      }
    }
    // Then both ranks only sleep, each after it has asked that somebody else sees to its link.
    for (int i = 0; i < 400 && receiver_.port.next < target; ++i) {
      if (sender_.port.next < target) sendOne();
      sender_.pump->attend();
      takeOne();
      receiver_.pump->attend();
      while (sender_.provider.step() || receiver_.provider.step()) {
      }
    }
    ASSERT_EQ(receiver_.port.next, target) << "seed " << seed;
  }
  EXPECT_GT(landedCount_, 200);
}

TEST_F(Link, WhatASenderThatLeavesHadReferredToStillComesAsItWas) {
  forth_.capacity = 0;
  for (int i = 0; i < 4; ++i) sendOne();
  leaveSender(wire::LinkFault::kAborted, {});
  for (std::vector<std::byte>& memory : sent_) std::ranges::fill(memory, std::byte{0xff});
  forth_.capacity = 100;
  for (int i = 0; i < 20; ++i) {
    sender_.pump->run();
    receiver_.pump->run();
  }
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(takeOne());
}

TEST_F(Link, NothingLandsOnceTheReceiverHasLeft) {
  for (int i = 0; i < 3; ++i) {
    sendOne();
    sender_.pump->run();
    receiver_.pump->run();
    takeOne();
  }
  ASSERT_FALSE(takeOne());  // and says where the next one may go
  receiver_.port.landing->wanted.store(receiver_.port.next + 1);
  const std::array<std::byte, kGeometry.slotBytes> before = landed_;
  receiver_.pump->leave({});
  for (int i = 0; i < 3; ++i) sendOne();
  for (int i = 0; i < 20; ++i) {
    sender_.pump->run();
    receiver_.pump->run();
  }
  EXPECT_EQ(landed_, before);
}

// A connection that goes on by itself would.
TEST_F(Link, NothingGoesOnLandingOnceTheReceiverHasLeft) {
  wire::offerLanding(receiver_.port, landed_.data(), 64, 0);
  forth_.messages.push_back({{.bytes = 64, .signature = 0}, std::vector<std::byte>(64)});
  forth_.isLate = true;
  receiver_.pump->attend();
  EXPECT_FALSE(forth_.isReaderStopped);
  receiver_.pump->leave({});
  EXPECT_TRUE(forth_.isReaderStopped);
  receiver_.port.view.control->receiverFault.store(
      static_cast<uint32_t>(wire::LinkFault::kDestroyed));
  receiver_.pump->close();
  ASSERT_EQ(back_.messages.size(), 1u) << "it still says that it leaves";
}

TEST_F(Link, AMessageOfAnotherCallDoesNotLand) {
  wire::offerLanding(receiver_.port, landed_.data(), 64, 1);
  std::vector<std::byte> payload(64, std::byte{7});
  forth_.messages.push_back({{.bytes = 64, .signature = 2}, payload});
  for (int i = 0; i < 10; ++i) receiver_.pump->run();
  ASSERT_TRUE(wire::hasMessage(receiver_.port));
  EXPECT_EQ(receiver_.port.view.message(0).kind, wire::MessageKind::kPayload);
  EXPECT_EQ(landed_[0], std::byte{0});
}

TEST_F(Link, HoldsBackASenderWhoseReceiverDoesNotRead) {
  int sent = 0;
  for (int i = 0; i < 1000; ++i) {
    sent += sendOne() ? 1 : 0;
    sender_.pump->run();
    receiver_.pump->run();
  }
  EXPECT_LE(sent, 16);  // two rings, the connection's queue and the wire
  EXPECT_GE(sent, 8);
}

TEST_F(Link, NobodyWatchesWhileARankPolls) {
  sender_.pump->run();
  receiver_.pump->run();
  EXPECT_EQ(sender_.provider.watchCount() + receiver_.provider.watchCount(), 0u);
}

TEST_F(Link, BringsWhatWasSentBeforeTheEndAndThenWhy) {
  sendOne();
  sendOne();
  leaveSender(wire::LinkFault::kAborted, {.guilty = 5, .text = "rank 5 died"});
  EXPECT_FALSE(wire::hasMessage(receiver_.port));
  while (receiver_.pump->run()) {
  }
  EXPECT_TRUE(takeOne());
  EXPECT_TRUE(takeOne());
  receiver_.pump->run();
  EXPECT_EQ(faultAt(receiver_.port.view.control->senderFault), wire::LinkFault::kAborted);
  EXPECT_EQ(receiver_.pump->parting().guilty, 5);
  EXPECT_EQ(receiver_.pump->parting().text, "rank 5 died");
}

TEST_F(Link, TellsTheSenderThatTheReceiverLeft) {
  receiver_.port.view.control->receiverFault.store(
      static_cast<uint32_t>(wire::LinkFault::kDestroyed));
  receiver_.pump->leave({});
  sender_.pump->attend();
  while (sender_.provider.step()) {
  }
  EXPECT_EQ(faultAt(sender_.port.view.control->receiverFault), wire::LinkFault::kDestroyed);
}

TEST_F(Link, APollingSenderHearsOfTheEndToo) {
  receiver_.port.view.control->receiverFault.store(
      static_cast<uint32_t>(wire::LinkFault::kAborted));
  receiver_.pump->leave({});
  for (int i = 0; i < 200; ++i) sender_.pump->run();
  EXPECT_EQ(faultAt(sender_.port.view.control->receiverFault), wire::LinkFault::kAborted);
}

TEST_F(Link, IsLostWhenTheWireIsCut) {
  forth_.isCut = back_.isCut = true;
  receiver_.pump->run();
  EXPECT_EQ(faultAt(receiver_.port.view.control->senderFault), wire::LinkFault::kLost);
  EXPECT_EQ(receiver_.pump->parting().text, "the wire was cut");
  EXPECT_TRUE(forth_.isReaderStopped);
  sendOne();
  sender_.pump->run();
  EXPECT_EQ(faultAt(sender_.port.view.control->receiverFault), wire::LinkFault::kLost);
  EXPECT_TRUE(back_.isReaderStopped);
}

TEST_F(Link, APartingWordBeforeTheCutSaysMoreThanTheCut) {
  receiver_.port.view.control->receiverFault.store(
      static_cast<uint32_t>(wire::LinkFault::kAborted));
  receiver_.pump->leave({.guilty = 2, .text = "rank 2 died"});
  forth_.isCut = back_.isCut = true;
  sendOne();
  for (int i = 0; i < 3; ++i) sender_.pump->run();
  EXPECT_EQ(faultAt(sender_.port.view.control->receiverFault), wire::LinkFault::kAborted);
  EXPECT_EQ(sender_.pump->parting().text, "rank 2 died");
}

TEST_F(Link, EndsOnAMessageThatFitsNoSlot) {
  forth_.messages.push_back({{.bytes = kGeometry.slotBytes + 1, .signature = 0}, {}});
  receiver_.pump->run();
  EXPECT_EQ(faultAt(receiver_.port.view.control->senderFault), wire::LinkFault::kLost);
  EXPECT_NE(receiver_.pump->parting().text.find("129 bytes"), std::string::npos);
}

TEST_F(Link, EndsOnANoticeThatIsTooLong) {
  forth_.messages.push_back({{.bytes = tutti::net::kNotice | (1u << 30), .signature = 1}, {}});
  receiver_.pump->run();
  EXPECT_EQ(faultAt(receiver_.port.view.control->senderFault), wire::LinkFault::kLost);
}

TEST_F(Link, EndsOnAReceiverThatSendsMessages) {
  back_.messages.push_back({{.bytes = 8, .signature = 0}, std::vector<std::byte>(8)});
  for (int i = 0; i < 200; ++i) sender_.pump->run();
  EXPECT_EQ(faultAt(sender_.port.view.control->receiverFault), wire::LinkFault::kLost);
}

TEST_F(Link, AnEndingSenderGivesUpOnAWireThatTakesNothing) {
  forth_.capacity = 0;
  sendOne();
  leaveSender(wire::LinkFault::kDestroyed, {});
  clock_.advance(std::chrono::seconds(2));  // beyond its patience
  sender_.pump->close();
  EXPECT_EQ(sender_.provider.watchCount(), 0u);
}

TEST_F(Link, AnAbortingSenderDoesNotWaitAtAll) {
  forth_.capacity = 0;
  sendOne();
  leaveSender(wire::LinkFault::kAborted, {});
  sender_.pump->close();  // would not return: the clock stands still
}

}  // namespace
}  // namespace tutti::transport::net
