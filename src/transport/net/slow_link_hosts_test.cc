// Which links of how many hosts are told to be slow: pumps over virtual wires, whose interfaces
// share their speed among all that goes through them, by seed.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/mapping.h"
#include "base/rng.h"
#include "base/units.h"
#include "transport/net/bare_provider_testing.h"
#include "transport/net/pump.h"

namespace tutti::transport::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using tutti::net::Connection;
using tutti::net::Label;
using tutti::net::Readiness;
using tutti::net::Way;

constexpr wire::LinkGeometry kGeometry{.slotCount = 4, .slotBytes = 256_KiB};
constexpr double kSpeed = 1e9 / 8;  // of each interface
constexpr milliseconds kStep{5};

struct Host {
  double sent = 0, received = 0;
  int sending = 0, receiving = 0;                                               // links
  std::shared_ptr<MeasuredLinks> measured = std::make_shared<MeasuredLinks>();  // by its pumps
};

// From one host to another. What the receiver says arrives at once.
struct Wire {
  std::string name;
  Host& from;
  Host& to;
  bool isTold = true;    // the interfaces tell their speed
  double most = kSpeed;  // that it carries itself
  double measured = 0;   // bytes a second, lately
  double allowance = 0;  // bytes that may arrive by now
  std::deque<Label> underWay{};
  std::deque<Label> arrived{};  // not taken yet
  std::deque<Label> back{};
};

Result<Progress> take(std::deque<Label>& labels, Label& label) {
  if (labels.empty()) return Progress::kIdle;
  label = labels.front();
  labels.pop_front();
  return Progress::kDone;
}

class SendingEnd final : public Connection {
 public:
  explicit SendingEnd(Wire& wire) : wire_(wire) {}
  Progress send(const Label& label, std::span<const std::byte>) override {
    wire_.underWay.push_back(label);
    return Progress::kAdvanced;
  }
  Result<Progress> flush() override {
    for (; !wire_.underWay.empty() && wire_.allowance >= wire_.underWay.front().bytes; ++sent_) {
      const Label label = wire_.underWay.front();
      wire_.allowance -= label.bytes;
      wire_.from.sent += label.bytes;
      wire_.to.received += label.bytes;
      wire_.arrived.push_back(label);
      wire_.underWay.pop_front();
    }
    return wire_.underWay.empty() ? Progress::kDone : Progress::kIdle;
  }
  uint64_t sentCount() const override { return sent_; }
  Result<Progress> receiveLabel(Label& label) override { return take(wire_.back, label); }
  Result<Progress> receivePayload(std::span<std::byte> payload) override {
    EXPECT_TRUE(payload.empty());
    return Progress::kDone;
  }
  std::optional<Way> way() const override {
    return Way{.text = wire_.name,
               .bytesPerSecond = static_cast<uint64_t>(kSpeed),
               .isSupposed = !wire_.isTold,
               .interfaceBytes = static_cast<uint64_t>(wire_.from.sent),
               .interfaceArrived = static_cast<uint64_t>(wire_.from.received),
               .measuredPerSecond = static_cast<uint64_t>(wire_.measured),
               .roundTrip = std::chrono::microseconds(50)};
  }

 private:
  Wire& wire_;
  uint64_t sent_ = 0;
};

class ReceivingEnd final : public Connection {
 public:
  explicit ReceivingEnd(Wire& wire) : wire_(wire) {}
  Progress send(const Label& label, std::span<const std::byte>) override {
    wire_.back.push_back(label);
    return Progress::kAdvanced;
  }
  Result<Progress> flush() override { return Progress::kDone; }
  uint64_t sentCount() const override { return 0; }
  Result<Progress> receiveLabel(Label& label) override { return take(wire_.arrived, label); }
  Result<Progress> receivePayload(std::span<std::byte>) override { return Progress::kDone; }
  std::optional<Way> way() const override {
    return Way{.text = wire_.name,
               .bytesPerSecond = static_cast<uint64_t>(kSpeed),
               .isSupposed = !wire_.isTold,
               .interfaceBytes = static_cast<uint64_t>(wire_.to.sent),
               .interfaceArrived = static_cast<uint64_t>(wire_.to.received)};
  }

 private:
  Wire& wire_;
};

// A link, and the ranks at its ends: one always has something to send, the other takes it at once.
class Traffic {
 public:
  Traffic(Wire& wire, Clock& clock, int32_t hostCount) : wire_(wire) {
    const auto optionsOf = [&](const wire::LinkView& ring) {
      return Pump::Options{.ring = ring,
                           .provider = provider_,
                           .clock = clock,
                           .patience = seconds(1),
                           .hostCount = hostCount,
                           .others = wire.from.measured};
    };
    sender_ = std::make_shared<SendPump>(optionsOf(out_.view));
    receiver_ = std::make_shared<ReceivePump>(optionsOf(in_.view));
    sender_->arrived(std::make_unique<SendingEnd>(wire));
    receiver_->arrived(std::make_unique<ReceivingEnd>(wire));
  }
  ~Traffic() {
    for (auto* fault : {&out_.view.control->senderFault, &in_.view.control->receiverFault})
      fault->store(static_cast<uint32_t>(wire::LinkFault::kAborted));
    sender_->close();
    receiver_->close();
  }
  Traffic(const Traffic&) = delete;
  Traffic& operator=(const Traffic&) = delete;

  void move() {
    while (wire_.allowance >= kGeometry.slotBytes) {
      while (wire::hasFreeSlot(out_, kGeometry.slotBytes))
        wire::publish(out_, kGeometry.slotBytes, 0);
      sender_->run();
      receiver_->run();
      while (wire::hasMessage(in_)) wire::release(in_);
    }
    for (int i = 0; i < 64; ++i) sender_->run();  // it waits, and hears what the receiver says
  }

 private:
  static UniqueMapping memory() {
    return std::move(mapPrivate(wire::linkBytes(kGeometry), "of a test's link").value());
  }

  Wire& wire_;
  BareProvider provider_{{.name = "virtual"}};
  UniqueMapping outMemory_ = memory(), inMemory_ = memory();
  wire::LinkPort out_{.view = wire::viewLink(outMemory_.get(), kGeometry)};
  wire::LinkPort in_{.view = wire::viewLink(inMemory_.get(), kGeometry)};
  std::shared_ptr<SendPump> sender_;       // shared with the provider, which keeps nothing
  std::shared_ptr<ReceivePump> receiver_;  // likewise
};

class SlowLinkHosts : public testing::TestWithParam<uint64_t> {
 protected:
  void SetUp() override {
    // Other tests of the seed run beside this one.
    log_ = testing::TempDir() + "tutti_slow_links_" + std::to_string(::getpid());
    std::filesystem::remove(log_);
    log::configure({.level = log::Level::kWarn, .file = log_});
  }
  void TearDown() override {
    log::configure({});
    std::filesystem::remove(log_);
  }

  Wire& add(size_t from, size_t to) {
    wires_.push_back(std::make_unique<Wire>(Wire{.name = fmt::format("host {} to {}", from, to),
                                                 .from = hosts_[from],
                                                 .to = hosts_[to],
                                                 .isTold = areTold_}));
    ++hosts_[from].sending;
    ++hosts_[to].receiving;
    return *wires_.back();
  }
  // Each interface gives its links alike, but for up to a quarter, which changes by chance.
  void moveFor(seconds time) {
    for (size_t i = traffic_.size(); i < wires_.size(); ++i) {
      traffic_.push_back(
          std::make_unique<Traffic>(*wires_[i], clock_, static_cast<int32_t>(hosts_.size())));
    }
    const double step = std::chrono::duration<double>(kStep).count();
    for (auto passed = milliseconds(0); passed < time; passed += kStep) {
      clock_.advance(kStep);
      for (size_t i = 0; i < traffic_.size(); ++i) {
        Wire& wire = *wires_[i];
        const double share = kSpeed / std::max(wire.from.sending, wire.to.receiving) *
                             (0.75 + 0.25 * static_cast<double>(rng_.below(1000)) / 1000);
        wire.measured = std::min(wire.most, share);
        wire.allowance += wire.measured * step;
        traffic_[i]->move();
      }
    }
  }
  std::string warningsAfter(seconds time) {
    moveFor(time);
    traffic_.clear();
    log::configure({});
    std::stringstream text;
    text << std::ifstream(log_).rdbuf();
    return text.str();
  }

  SeededRng rng_{GetParam()};
  ManualClock clock_;
  bool areTold_ = true;  // interfaces' speeds, of wires that are added
  std::vector<Host> hosts_ = std::vector<Host>(6 + rng_.below(5));
  std::vector<std::unique_ptr<Wire>> wires_;
  std::vector<std::unique_ptr<Traffic>> traffic_;  // of each
  std::string log_;
};

INSTANTIATE_TEST_SUITE_P(Seeds, SlowLinkHosts, testing::Range<uint64_t>(0, 10));

void expectOnly(const Wire& slow, const std::string& told) {
  const size_t at = told.find("a slow link: ");
  ASSERT_NE(at, std::string::npos) << slow.name;
  EXPECT_EQ(told.find("a slow link: " + slow.name + " carries"), at) << told;
  EXPECT_EQ(told.find("a slow link: ", at + 1), std::string::npos) << told;
}

TEST_P(SlowLinkHosts, InARingOneOfATenthIsNamedAndNoOther) {
  for (size_t host = 0; host < hosts_.size(); ++host) add(host, (host + 1) % hosts_.size());
  Wire& slow = *wires_[rng_.below(wires_.size())];
  slow.most = kSpeed / 10;
  expectOnly(slow, warningsAfter(seconds(10)));
}

// Of interfaces that tell no speed, what they have carried before tells.
TEST_P(SlowLinkHosts, InARingOneThatFallsToATenthIsNamedAlsoWhereNobodyTellsASpeed) {
  areTold_ = false;
  for (size_t host = 0; host < hosts_.size(); ++host) add(host, (host + 1) % hosts_.size());
  moveFor(seconds(4));
  Wire& slow = *wires_[rng_.below(wires_.size())];
  slow.most = kSpeed / 10;
  expectOnly(slow, warningsAfter(seconds(10)));
}

// Its interface is supposed to have much more, whatever the others of the ring have.
TEST_P(SlowLinkHosts,
       InARingOneThatHasHardlyAnythingFromItsFirstMessageOnIsNamedAlsoWhereNobodyTellsASpeed) {
  areTold_ = false;
  for (size_t host = 0; host < hosts_.size(); ++host) add(host, (host + 1) % hosts_.size());
  Wire& slow = *wires_[rng_.below(wires_.size())];
  slow.most = kSpeed / 20;
  expectOnly(slow, warningsAfter(seconds(10)));
}

// A tenth is what any wire may have where more goes through between machines of one host; neither
// end of a ring's link sees whether the link behind it is a wire.
TEST_P(SlowLinkHosts, ThatAreMachinesOfTwoHostsInARingAreTakenForNoneWhereNobodyTellsASpeed) {
  areTold_ = false;
  const size_t other = hosts_.size() / 2;  // the second host's first machine
  for (size_t host = 0; host < hosts_.size(); ++host) {
    const size_t next = (host + 1) % hosts_.size();
    if (next == 0 || next == other) {
      add(host, next).most = kSpeed / 10;
    } else {
      add(host, next);
    }
  }
  EXPECT_EQ(warningsAfter(seconds(10)), "");
}

// Nothing is known of it but what its host's other links have.
TEST_P(SlowLinkHosts, OfFewOneThatWasSlowFromItsFirstMessageOnIsNamedAlsoWhereNobodyTellsASpeed) {
  areTold_ = false;
  hosts_.resize(4);
  for (size_t host = 0; host < hosts_.size(); ++host) {
    for (size_t to = 0; to < hosts_.size(); ++to) {
      if (to != host) add(host, to);
    }
  }
  Wire& slow = *wires_[rng_.below(wires_.size())];
  slow.most = kSpeed / 3 / 12;  // of a third each, up to a quarter less
  expectOnly(slow, warningsAfter(seconds(10)));
}

TEST_P(SlowLinkHosts, OfFewThatAllSendToAllAreTakenForNoneWhereNobodyTellsASpeed) {
  areTold_ = false;
  hosts_.resize(2 + rng_.below(4));
  for (size_t host = 0; host < hosts_.size(); ++host) {
    for (size_t to = 0; to < hosts_.size(); ++to) {
      if (to != host) add(host, to);
    }
  }
  EXPECT_EQ(warningsAfter(seconds(5)), "");
}

TEST_P(SlowLinkHosts, ThatShareAWireAfterTheyHadOneEachAreTakenForNone) {
  areTold_ = rng_.below(2) == 0;
  for (size_t host = 0; host < hosts_.size(); ++host) add(host, (host + 1) % hosts_.size());
  moveFor(seconds(4));
  for (size_t host = 1; host + 1 < hosts_.size(); ++host) add(host, 0);
  EXPECT_EQ(warningsAfter(seconds(10)), "");
}

// Each sends over one link, and has no other to compare it with.
TEST_P(SlowLinkHosts, ThatAllSendToOneAreTakenForNone) {
  for (size_t host = 1; host < hosts_.size(); ++host) add(host, 0);
  EXPECT_EQ(warningsAfter(seconds(10)), "");
}

TEST_P(SlowLinkHosts, ThatAllSendToAllAreTakenForNone) {
  for (size_t host = 0; host < hosts_.size(); ++host) {
    for (size_t to = 0; to < hosts_.size(); ++to) {
      if (to != host) add(host, to);
    }
  }
  EXPECT_EQ(warningsAfter(seconds(5)), "");
}

// One of them receives from all, each of which sends at full speed to another as well.
TEST_P(SlowLinkHosts, ToABusyReceiverBesideFastOnesAreTakenForNone) {
  for (size_t host = 1; host < hosts_.size(); ++host) {
    add(host, 0);
    add(host, 1 + host % (hosts_.size() - 1));
  }
  EXPECT_EQ(warningsAfter(seconds(10)), "");
}

}  // namespace
}  // namespace tutti::transport::net
