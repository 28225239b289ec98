// libFuzzer entry: what comes to a link's end between hosts: messages and notices over a
// connection, and, where the ring is another process's, what that writes there. Build with clang
// -fsanitize=fuzzer,address.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>

#include "net/foreign_testing.h"
#include "transport/net/bare_provider_testing.h"
#include "transport/net/foreign_ring_testing.h"
#include "transport/net/pump.h"

namespace tutti::transport::net {
namespace {

using tutti::net::ForeignConnection;
using tutti::net::takeFront;
using tutti::net::takeNumber;
using wire::MessageKind;

// Some connections cannot be watched: then nobody works on them but who runs the pump.
class Service final : public BareProvider {
 public:
  Service() : BareProvider({.name = "foreign", .reach = wire::CarrierReach::kAnything}) {}
  Result<uint64_t> watch(tutti::net::Connection&, const tutti::net::Readiness&,
                         std::shared_ptr<tutti::net::Worker>) override {
    if (++watches_ % 3 == 0) return Status(Code::kSystemError, "no watch is left");
    return watches_;
  }
  uint64_t lastWatch() const { return watches_; }

 private:
  uint64_t watches_ = 0;
};

struct Setting {
  bool isSender = false;
  bool takesLanding = false;
  bool isAttended = false;  // else the provider's thread runs the pump
  wire::LinkGeometry geometry;
  size_t piece = 1;
};

Setting settingOf(std::span<const std::byte>& input) {
  const auto bits = takeNumber<uint8_t>(input);
  const size_t piece = size_t{1} + takeNumber<uint8_t>(input);
  return {.isSender = (bits & 1) != 0,
          .takesLanding = (bits & 2) != 0,
          .isAttended = (bits & 4) == 0,
          .geometry = {.slotCount = 1u << ((bits >> 3) & 3),
                       .slotBytes = (bits & 32) != 0 ? 16'384u : 128u},
          .piece = piece};
}

struct World {
  ManualClock clock;
  Service service;

  Pump::Options optionsFor(const wire::LinkView& ring, bool isForOther) {
    return {
        .ring = ring,
        .provider = service,
        .clock = clock,
        .patience = std::chrono::milliseconds(10),
        .isForOther = isForOther,
        .wait = [this](std::unique_lock<std::mutex>&, Nanoseconds most) { clock.advance(most); }};
  }
  void runOnce(Pump& pump, bool isAttended) {
    if (isAttended) {
      pump.run();
      return;
    }
    pump.attend();
    pump.work(service.lastWatch());
  }
};

// What the other side said when it left is fit to be shown.
void check(const Parting& parting) {
  for (const char each : parting.text) {
    if (static_cast<unsigned char>(each) < ' ' && each != '\n') std::abort();
  }
}

// ---- a receiver ---------------------------------------------------------------------------------

struct Arrival {
  uint32_t bytes, signature;
  MessageKind kind;
  uint32_t sum;  // of the payload
  bool operator==(const Arrival&) const = default;
};
struct Arrivals {
  std::vector<Arrival> messages;
  uint32_t fault = 0;
  Parting parting;
  bool operator==(const Arrivals& other) const {
    return messages == other.messages && fault == other.fault &&
           parting.guilty == other.parting.guilty && parting.text == other.parting.text;
  }
};

class ReceivingRank {
 public:
  ReceivingRank(const Setting& setting, ReceivePump& pump, const wire::LinkView& ring)
      : setting_(setting), pump_(pump), port_{.view = ring} {
    port_.landing = &pump.landing();
    offer();
  }
  void takeAll() {
    while (wire::hasMessage(port_)) {
      const wire::MessageHead& message = port_.view.message(port_.next);
      if (message.bytes > setting_.geometry.slotBytes) std::abort();
      const bool hasLanded = message.kind == MessageKind::kLanded;
      if (hasLanded && message.bytes != sizeof landing_) std::abort();
      if (!hasLanded && message.kind != MessageKind::kPayload) std::abort();
      const std::byte* payload =
          hasLanded ? landing_.data() : wire::receivedPayload(port_, message.bytes);
      arrivals_.messages.push_back({.bytes = message.bytes,
                                    .signature = message.signature,
                                    .kind = setting_.takesLanding ? MessageKind{} : message.kind,
                                    .sum = crc32c({payload, message.bytes})});
      wire::release(port_);
      offer();
    }
    wire::releaseAll(port_);
  }
  bool hasEnded() const { return port_.view.control->senderFault.load() != 0; }
  Arrivals end() {
    arrivals_.fault = port_.view.control->senderFault.load();
    arrivals_.parting = pump_.parting();
    return std::move(arrivals_);
  }

 private:
  void offer() {
    if (setting_.takesLanding) wire::offerLanding(port_, landing_.data(), sizeof landing_, 7);
  }

  const Setting setting_;
  ReceivePump& pump_;
  wire::LinkPort port_;
  std::array<std::byte, 64> landing_{};
  Arrivals arrivals_;
};

Arrivals receive(const Setting& setting, std::span<const std::byte> script, size_t piece) {
  World world;
  const ForeignRing ring(setting.geometry);
  const auto pump = std::make_shared<ReceivePump>(world.optionsFor(ring.view(), false));
  ReceivingRank rank(setting, *pump, ring.view());
  pump->arrived(std::make_unique<ForeignConnection>(script, piece));
  for (size_t looks = 0; !rank.hasEnded(); ++looks) {
    // Each look brings a byte or takes a message, but for one that waits for a place to land.
    if (looks > 4 * script.size() + 100) std::abort();
    world.runOnce(*pump, setting.isAttended);
    rank.takeAll();
  }
  Arrivals arrivals = rank.end();
  check(arrivals.parting);
  pump->settle();
  pump->leave({.guilty = 1, .text = "left"});
  pump->close();
  return arrivals;
}

// ---- a sender for another process ---------------------------------------------------------------

// The first two bytes are the length of what the receiver sends; the rest is what the ring's owner
// does.
void send(const Setting& setting, std::span<const std::byte> input) {
  const auto script = takeFront(input, takeNumber<uint16_t>(input));
  World world;
  ForeignRing ring(setting.geometry);
  const auto pump = std::make_shared<SendPump>(world.optionsFor(ring.view(), true));
  pump->arrived(std::make_unique<ForeignConnection>(script, setting.piece));
  while (!input.empty()) {
    ring.befall(input);
    world.runOnce(*pump, setting.isAttended);
    // The word lies in the ring.
    const FutexPoint mark = pump->nextMark();
    if (!ring.holds(mark.word)) std::abort();
  }
  for (int looks = 0; looks < 256; ++looks) world.runOnce(*pump, setting.isAttended);
  check(pump->parting());
  pump->settle();
  pump->leave({.guilty = 1, .text = "left"});
  pump->close();
}

void play(std::span<const std::byte> input) {
  const Setting setting = settingOf(input);
  if (setting.isSender) return send(setting, input);
  // However it is cut, the same comes out.
  const Arrivals whole = receive(setting, input, std::max<size_t>(input.size(), 1));
  if (receive(setting, input, setting.piece) != whole) std::abort();
}

}  // namespace
}  // namespace tutti::transport::net

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 0) tutti::transport::net::play(std::as_bytes(std::span(data, size)));
  return 0;
}
