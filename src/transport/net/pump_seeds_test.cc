// Links of several processes over a virtual network, by thousands of seeds: what each thread does
// next, how much the network takes, when bytes arrive, who leaves, dies or is cut off, and when. A
// failing seed says how to play it again.
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string>

#include "base/mapping.h"
#include "transport/net/pump.h"
#include "transport/net/virtual_network_testing.h"

namespace tutti::transport::net {
namespace {

constexpr uint64_t kSeedCount = 5'000;
constexpr Nanoseconds kPatience = std::chrono::seconds(10);
constexpr Nanoseconds kLookIn = std::chrono::milliseconds(100);  // of a rank that sleeps
constexpr uint64_t kMostActs = 1'000'000;

// What goes wrong, to one of a seed's links.
enum class Mishap : uint8_t {
  kNone,
  kCut,  // the wires end, with what is under way
  kSenderAborts,
  kReceiverAborts,
  kSenderDestroys,  // with messages under way: they are still served
  kNoWatches,       // the service refuses some
};
constexpr uint64_t kMishapCount = 6;

std::byte fillOf(uint64_t number, uint64_t at) {
  return static_cast<std::byte>((number * 31 + at * 7) & 0xff);
}

// The world's clock, and what goes on in it while a thread waits.
struct Time {
  ManualClock& clock;
  std::function<void(std::unique_lock<std::mutex>&, Nanoseconds)> wait;
};

// A rank's end of a link, and what the rank does there.
template <typename PumpKind>
struct End {
  std::optional<UniqueMapping> memory;
  wire::LinkPort port;
  std::shared_ptr<PumpKind> pump;  // shared with the service
  VirtualService* service = nullptr;
  const tutti::net::Connection* connection = nullptr;  // none yet: null
  bool isAsleep = false;
  bool isThrough = false;  // its operation is over, or has failed
  bool hasLeft = false;
  bool isClosing = false;
  bool isClosed = false;
  Instant leftAt{};
  Instant closedAt{};

  void open(VirtualService& where, const Time& time, const wire::LinkGeometry& geometry) {
    service = &where;
    memory = std::move(mapPrivate(wire::linkBytes(geometry), "of a link").value());
    port = {.view = wire::viewLink(memory->get(), geometry)};
    pump = std::make_shared<PumpKind>(Pump::Options{.ring = port.view,
                                                    .provider = where,
                                                    .clock = time.clock,
                                                    .patience = kPatience,
                                                    .wait = time.wait});
  }
  void connect(std::unique_ptr<VirtualConnection> made) {
    connection = made.get();
    pump->arrived(std::move(made));
  }
  std::string_view state() const {
    if (isClosed) return "closed";
    if (isClosing) return "closing";
    if (hasLeft) return "left";
    return isThrough ? "through" : isAsleep ? "asleep" : "awake";
  }
  bool isBusy() const { return isClosing || isClosed; }
  void poll() {
    pump->run();
    if (connection == nullptr || isClosed) return;
    EXPECT_FALSE(service->isWatched(*connection)) << "watched by the service while the rank polls";
  }
  void sleep() {
    pump->attend();
    isAsleep = true;
  }
  void leave(std::atomic<uint32_t>& word, wire::LinkFault fault, Instant now) {
    isThrough = hasLeft = true;
    isAsleep = false;
    leftAt = now;
    word.store(static_cast<uint32_t>(fault));
    pump->leave({.guilty = 3, .text = "left"});
  }
  // Other threads go on meanwhile.
  void close(Clock& clock) {
    isClosing = true;
    pump->close();
    isClosed = true;
    closedAt = clock.now();
    connection = nullptr;
  }
};

class VirtualLink {
 public:
  VirtualLink(SeededRng& rng, const Time& time, VirtualService& from, VirtualService& to)
      : rng_(rng), clock_(time.clock), count_(rng.below(40)) {
    const bool isLong = rng.below(16) == 0;  // long enough to be awaited for a place to land
    geometry_ = {.slotCount = 1u << rng.below(4), .slotBytes = isLong ? 16'384u : 128u};
    if (isLong) count_ /= 4;
    forth_.capacity = isLong ? 20'000 : 1 + rng.below(400);
    back_.capacity = 1 + rng.below(60);
    sent_.resize(geometry_.slotCount);
    landing_.resize(geometry_.slotBytes);
    sender_.open(from, time, geometry_);
    receiver_.open(to, time, geometry_);
    receiver_.port.landing = &receiver_.pump->landing();
    sender_.connect(std::make_unique<VirtualConnection>(forth_, back_, rng, alive_));
  }

  // One step of whatever the seed picks. False: that one has nothing to do now.
  bool act(bool mayClose) {
    switch (rng_.below(8)) {
      case 0: return forth_.deliver(rng_);
      case 1: return back_.deliver(rng_);
      case 2: return meet();
      case 3:
      case 4: return sendingRank(mayClose);
      case 5:
      case 6: return receivingRank(mayClose);
      default: return befall();
    }
  }
  void expect(Mishap mishap, uint64_t at) {
    mishap_ = mishap;
    mishapAt_ = at;
  }
  // Nothing would ever move it.
  bool isStuck() {
    return mishap_ != Mishap::kNoWatches && forth_.flying.empty() && back_.flying.empty() &&
           hasMet_ && sender_.isAsleep && !senderWakes() && receiver_.isAsleep && !receiverWakes();
  }
  std::string describe() {
    return fmt::format("{} of {} sent ({}), {} received ({}); under way {} + {} and {} + {} bytes",
                       sender_.port.next, count_, sender_.state(), receiver_.port.next,
                       receiver_.state(), forth_.flying.size(), forth_.arrived.size(),
                       back_.flying.size(), back_.arrived.size());
  }
  bool isOver() const { return sender_.isClosed && receiver_.isClosed; }
  void judge() const;

 private:
  static uint32_t signatureOf(uint64_t number) { return static_cast<uint32_t>(number) + 5; }
  uint32_t bytesOf(uint64_t number) const {
    return static_cast<uint32_t>(((number + 1) * 2'654'435'761u) % (geometry_.slotBytes + 1));
  }
  wire::LinkControl& senderSide() { return *sender_.port.view.control; }
  wire::LinkControl& receiverSide() { return *receiver_.port.view.control; }
  template <typename End, typename Leave, typename Wakes>
  std::optional<bool> turnOf(End& end, bool mayClose, const Leave& leave, const Wakes& wakes);
  bool senderWakes() {
    return senderSide().receiverFault.load() != 0 ||
           (sender_.port.next < count_ ? wire::hasFreeSlot(sender_.port, 0)
                                       : wire::isDrained(sender_.port));
  }
  bool receiverWakes() {
    return receiverSide().senderFault.load() != 0 || wire::hasMessage(receiver_.port);
  }
  // Whoever sleeps is woken by its word alone, or looks in where the service could not watch.
  bool looksIn() { return mishap_ == Mishap::kNoWatches && rng_.below(3) == 0; }

  bool meet();
  bool befall();
  bool sendingRank(bool mayClose);
  void sendOne();
  bool receivingRank(bool mayClose);
  void takeOne();
  void leaveSender(wire::LinkFault fault);
  void leaveReceiver(wire::LinkFault fault);

  SeededRng& rng_;
  ManualClock& clock_;
  wire::LinkGeometry geometry_;
  uint64_t count_;  // messages that the sending rank means to send
  VirtualWire forth_;
  VirtualWire back_;
  int alive_ = 0;
  End<SendPump> sender_;
  End<ReceivePump> receiver_;
  std::vector<std::vector<std::byte>> sent_;  // memory of the program's that references name
  std::vector<std::byte> landing_;
  std::vector<std::byte> landingAtEnd_;
  std::optional<uint64_t> published_;  // before the sender left
  uint32_t senderSaw_ = 0;             // the faults that the ranks found
  uint32_t receiverSaw_ = 0;
  Mishap mishap_ = Mishap::kNone;
  uint64_t mishapAt_ = 0;
  bool hasMet_ = false;
  bool isCut_ = false;
};

// The receiver's process hears of the connection some time after the sender's has it, and closes
// one that it does not expect any more.
bool VirtualLink::meet() {
  if (hasMet_ || receiver_.isClosing != receiver_.isClosed) return false;
  hasMet_ = true;
  auto connection = std::make_unique<VirtualConnection>(back_, forth_, rng_, alive_);
  if (!receiver_.isClosed) receiver_.connect(std::move(connection));
  return true;
}

bool VirtualLink::befall() {
  if (mishap_ == Mishap::kNone || mishap_ == Mishap::kNoWatches) return false;
  if (mishapAt_ > 0) {
    --mishapAt_;
    return false;
  }
  const Mishap now = std::exchange(mishap_, Mishap::kNone);
  if (now == Mishap::kCut) {
    forth_.cut();
    back_.cut();
    isCut_ = true;
  }
  if (now == Mishap::kSenderAborts && !sender_.hasLeft) leaveSender(wire::LinkFault::kAborted);
  if (now == Mishap::kSenderDestroys && !sender_.hasLeft) leaveSender(wire::LinkFault::kDestroyed);
  if (now == Mishap::kReceiverAborts && !receiver_.hasLeft)
    leaveReceiver(wire::LinkFault::kAborted);
  return true;
}

// The turn of a rank that is busy, through or asleep: whether it did anything. Nothing: it is awake
// and has calls to make.
template <typename End, typename Leave, typename Wakes>
std::optional<bool> VirtualLink::turnOf(End& end, bool mayClose, const Leave& leave,
                                        const Wakes& wakes) {
  if (end.isBusy()) return false;
  if (end.isThrough) {
    if (!end.hasLeft) {
      leave();
    } else if (mayClose && rng_.below(3) == 0) {
      end.close(clock_);
    }
    return true;
  }
  if (end.isAsleep && !wakes()) {
    if (looksIn()) end.sleep();
    return false;
  }
  end.isAsleep = false;
  return std::nullopt;
}

bool VirtualLink::sendingRank(bool mayClose) {
  End<SendPump>& end = sender_;
  const auto leave = [this] { leaveSender(wire::LinkFault::kDestroyed); };
  if (const auto had = turnOf(end, mayClose, leave, [this] { return senderWakes(); })) return *had;
  if (const uint32_t fault = senderSide().receiverFault.load(); fault != 0) {
    senderSaw_ = fault;
    leaveSender(wire::LinkFault::kAborted);
    return true;
  }
  const bool hasMore = end.port.next < count_;
  if (hasMore && wire::hasFreeSlot(end.port, 0) && rng_.below(3) != 0) {
    sendOne();
  } else if (!hasMore && wire::isDrained(end.port)) {
    end.pump->settle();
    end.isThrough = true;
  } else if (rng_.below(3) != 0) {
    end.poll();
  } else {
    end.sleep();
  }
  return true;
}

// Every third that is long enough names memory which the program uses for other things once the
// link's head has passed it.
void VirtualLink::sendOne() {
  wire::LinkPort& port = sender_.port;
  const uint64_t number = port.next;
  const uint32_t bytes = bytesOf(number);
  std::vector<std::byte>& memory = sent_[number % sent_.size()];
  memory.resize(bytes);
  for (uint32_t i = 0; i < bytes; ++i) memory[i] = fillOf(number, i);
  if (number % 3 == 0 && bytes > wire::kInlineBytes) {
    wire::publishReference(port, memory.data(), bytes, signatureOf(number));
    return;
  }
  if (bytes > 0) std::memcpy(port.view.payload(number, bytes), memory.data(), bytes);
  wire::publish(port, bytes, signatureOf(number));
}

// From then on the program's memory is its own again.
void VirtualLink::leaveSender(wire::LinkFault fault) {
  published_ = sender_.port.next;
  sender_.leave(senderSide().senderFault, fault, clock_.now());
  for (std::vector<std::byte>& memory : sent_) {
    memory.clear();
    memory.shrink_to_fit();
  }
}

bool VirtualLink::receivingRank(bool mayClose) {
  End<ReceivePump>& end = receiver_;
  const auto leave = [this] { leaveReceiver(wire::LinkFault::kDestroyed); };
  if (const auto had = turnOf(end, mayClose, leave, [this] { return receiverWakes(); }))
    return *had;
  if (wire::hasMessage(end.port)) {
    if (rng_.below(4) != 0) takeOne();
    return true;
  }
  if (const uint32_t fault = receiverSide().senderFault.load(); fault != 0) {
    receiverSaw_ = fault;
    leaveReceiver(wire::LinkFault::kAborted);
    return true;
  }
  if (end.port.next == count_ && rng_.below(2) == 0) {
    end.pump->settle();
    end.isThrough = true;
    return true;
  }
  const uint32_t bytes = bytesOf(end.port.next);
  if (end.port.next < count_ && bytes > 0 && rng_.below(2) == 0)
    wire::offerLanding(end.port, landing_.data(), bytes, signatureOf(end.port.next));
  rng_.below(3) != 0 ? end.poll() : end.sleep();
  return true;
}

void VirtualLink::takeOne() {
  wire::LinkPort& port = receiver_.port;
  const uint64_t number = port.next;
  const wire::MessageHead& head = port.view.message(number);
  ASSERT_LT(number, count_) << "a message too many";
  ASSERT_EQ(head.signature, signatureOf(number)) << "lost, repeated or out of order";
  ASSERT_EQ(head.bytes, bytesOf(number));
  const bool hasLanded = head.kind == wire::MessageKind::kLanded;
  const std::byte* payload = hasLanded ? landing_.data() : port.view.payload(number, head.bytes);
  for (uint32_t i = 0; i < head.bytes; ++i) {
    ASSERT_EQ(payload[i], fillOf(number, i)) << "byte " << i << " of message " << number;
  }
  wire::release(port);
}

void VirtualLink::leaveReceiver(wire::LinkFault fault) {
  receiver_.leave(receiverSide().receiverFault, fault, clock_.now());
  landingAtEnd_ = landing_;
}

void VirtualLink::judge() const {
  EXPECT_EQ(alive_, 0) << "a connection was not closed";
  EXPECT_EQ(landing_, landingAtEnd_) << "a message landed after the receiver had left";
  EXPECT_EQ(sender_.pump.use_count(), 1) << "the service keeps a pump";
  EXPECT_EQ(receiver_.pump.use_count(), 1) << "the service keeps a pump";
  EXPECT_LE((sender_.closedAt - sender_.leftAt).count(), (kPatience + kLookIn).count());
  EXPECT_LE((receiver_.closedAt - receiver_.leftAt).count(), (kPatience + kLookIn).count());
  const bool wasInTime = sender_.closedAt - sender_.leftAt < kPatience;
  const auto aborted = static_cast<uint32_t>(wire::LinkFault::kAborted);
  const bool sentAll = sender_.port.view.control->senderFault.load() != aborted && wasInTime;
  const bool tookAll = receiver_.port.view.control->receiverFault.load() != aborted ||
                       receiverSaw_ != 0;  // it took all that was there
  if (sentAll && tookAll && hasMet_ && !isCut_) {
    EXPECT_EQ(receiver_.port.next, *published_) << "a message of a peer that closed was lost";
  }
  EXPECT_LE(receiver_.port.next, *published_);
}

class World {
 public:
  explicit World(uint64_t seed) : rng_(seed) {
    const auto mishap = static_cast<Mishap>(seed % kMishapCount);
    for (size_t i = 0; i < 2 + rng_.below(2); ++i)
      services_.push_back(std::make_unique<VirtualService>(rng_, mishap == Mishap::kNoWatches));
    const size_t linkCount = 1 + rng_.below(4);
    const Time time{.clock = clock_, .wait = [this](auto& lock, Nanoseconds most) {
                      lock.unlock();
                      meanwhile(most);
                      lock.lock();
                    }};
    for (size_t i = 0; i < linkCount; ++i) {
      links_.push_back(std::make_unique<VirtualLink>(rng_, time, *services_[i % 2],
                                                     *services_[services_.size() - 1 - i % 2]));
    }
    links_.front()->expect(mishap, rng_.below(200));
    if (mishap == Mishap::kNoWatches)
      for (auto& link : links_) link->expect(mishap, 0);
  }

  void run() {
    for (uint64_t acts = 0; !isOver(); ++acts) {
      ASSERT_LT(acts, kMostActs) << "no end comes: " << describe();
      const bool moved = act(/*mayClose=*/true);
      ASSERT_TRUE(moved || !isStuck()) << "all sleep, and something is left: " << describe();
      if (testing::Test::HasFatalFailure()) return;
    }
    for (size_t steps = 0; std::ranges::any_of(services_, [](auto& each) { return each->step(); });
         ++steps) {
      ASSERT_LT(steps, 1'000u) << "the service never comes to rest";
    }
    for (const auto& service : services_) EXPECT_EQ(service->watchCount(), 0u);
    for (const auto& link : links_) link->judge();
  }

 private:
  bool act(bool mayClose) {
    clock_.advance(std::chrono::microseconds(rng_.below(50)));
    if (rng_.below(3) == 0) return services_[rng_.below(services_.size())]->step();
    return links_[rng_.below(links_.size())]->act(mayClose);
  }
  // While one thread waits, the others do what they do, but for waiting themselves.
  void meanwhile(Nanoseconds most) {
    const Instant end = clock_.now() + most;
    for (uint64_t i = rng_.below(40); i > 0; --i) act(/*mayClose=*/false);
    clock_.advance(std::max(Nanoseconds(0), end - clock_.now()));
  }
  bool isOver() const {
    return std::ranges::all_of(links_, [](const auto& link) { return link->isOver(); });
  }
  std::string describe() const {
    std::string text;
    for (const auto& link : links_) text += link->describe() + "\n";
    return text;
  }
  bool isStuck() const {
    return std::ranges::all_of(services_, [](const auto& each) { return each->isIdle(); }) &&
           std::ranges::any_of(links_, [](const auto& link) { return link->isStuck(); });
  }

  SeededRng rng_;
  ManualClock clock_;
  std::vector<std::unique_ptr<VirtualService>> services_;  // one a process
  std::vector<std::unique_ptr<VirtualLink>> links_;
};

TEST(PumpBySeed, NothingIsLostRepeatedOrLeftBehind) {
  const auto only = static_cast<uint64_t>(GTEST_FLAG_GET(random_seed));
  const uint64_t first = only == 0 ? 1 : only;
  const uint64_t last = only == 0 ? kSeedCount : only;
  for (uint64_t seed = first; seed <= last; ++seed) {
    World(seed).run();
    ASSERT_FALSE(HasFailure()) << "seed " << seed
                               << "; again: --gtest_filter=PumpBySeed.* --gtest_random_seed="
                               << seed;
  }
}

}  // namespace
}  // namespace tutti::transport::net
