// libFuzzer entry: what the two processes of a host that carry a link for each other say and write.
// Build with clang -fsanitize=fuzzer,address.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "observe/trace.h"
#include "transport/net/foreign_ring_testing.h"
#include "transport/net/relay_wire.h"
#include "transport/net/relayed_end.h"

namespace tutti::transport::net {
namespace {

using tutti::net::takeFront;
using tutti::net::takeNumber;

struct Channel {
  UniqueFd own, theirs;

  static Channel open() {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0)
      std::abort();
    return {.own = UniqueFd(ends[0]), .theirs = UniqueFd(ends[1])};
  }
  void bring(std::span<const std::byte> message) const {
    if (::send(theirs.get(), message.data(), message.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(message.size()))
      std::abort();
  }
};

// A good one, but for the bits that the input has set.
template <typename Record>
bool bring(const Channel& channel, const Record& good, std::span<const std::byte> changes,
           Record& received) {
  std::array<std::byte, sizeof good> bytes;
  std::memcpy(bytes.data(), &good, sizeof good);
  for (size_t i = 0; i < std::min(bytes.size(), changes.size()); ++i) bytes[i] ^= changes[i];
  // A long input is a record that was cut.
  const size_t cut = changes.size() > sizeof good ? changes.size() - sizeof good : 0;
  channel.bring(std::span(bytes).first(sizeof good - std::min(cut, sizeof good - 1)));
  ManualClock clock;
  const Status status = receiveRecord(channel.own.get(), received, {clock, Nanoseconds(0)});
  if (status.ok() != (cut == 0)) std::abort();
  return status.ok();
}

void hearRequest(std::span<const std::byte> changes) {
  const NetOffer offer{.slotCount = 4, .slotBytes = 4096, .number = 7};
  RelayRequest request{.sender = 0, .receiver = 2, .slotCount = 4, .slotBytes = 4096};
  std::memcpy(request.offer.data(), &offer, sizeof offer);
  RelayRequest received;
  if (!bring(Channel::open(), request, changes, received)) return;
  Result<AskedLink> asked = readRequest(received);
  if (!asked.ok()) {
    if (std::ranges::all_of(changes, [](std::byte each) { return each == std::byte{0}; }))
      std::abort();
    return;
  }
  const NetOffer& found = asked->offer;
  if (!wire::isValid(asked->geometry) || found.slotCount != asked->geometry.slotCount ||
      found.slotBytes != asked->geometry.slotBytes || asked->geometry.shortCount != 0)
    std::abort();
}

void hearAnswer(std::span<const std::byte> changes) {
  RelayAnswer answer{.outcome = RelayAnswer::Outcome::kUnreachable, .bytes = 5, .why = {}};
  std::memcpy(answer.why.data(), "no\nway", 6);
  RelayAnswer received;
  if (!bring(Channel::open(), answer, changes, received)) return;
  Result<std::string> why = readAnswer(received);
  if (!why.ok()) return;
  if (received.outcome > RelayAnswer::Outcome::kCarried || why->size() > received.why.size())
    std::abort();
}

// The sender's side of a link whose carrier writes to the ring and the page behind it.
void follow(std::span<const std::byte> input) {
  const wire::LinkGeometry geometry{.slotCount = 4, .slotBytes = 128};
  const size_t segmentBytes = relaySegmentBytes(geometry);
  UniqueMapping mapping = std::move(mapPrivate(segmentBytes, "of a link").value());
  const std::span memory(static_cast<std::byte*>(mapping.get()), segmentBytes);
  std::vector<std::unique_ptr<observe::ProfilerSink>> sinks;
  sinks.push_back(std::make_unique<observe::Trace>(64));
  observe::Profiler profiler(std::move(sinks));
  ManualClock clock;
  const bootstrap::PeerInfo carrier{.rank = 1};
  Channel channel = Channel::open();
  RelayedEnd end({.memory = std::move(mapping),
                  .geometry = geometry,
                  .channel = std::make_shared<UniqueFd>(std::move(channel.own)),
                  .carrier = carrier,
                  .sender = 0,
                  .receiver = 2,
                  .clock = clock});
  end.profile(profiler);
  wire::LinkPort port{.view = end.view()};
  while (!input.empty()) {
    const auto act = takeNumber<uint8_t>(input);
    switch (act >> 5) {
      case 0:
        if (wire::hasFreeSlot(port, 0)) wire::publish(port, act, 42);
        break;
      case 1: end.beginTransfer({}, {.peer = 2, .isSend = true, .messageCount = act % 8u}); break;
      case 2: end.endTransfer(port.next); break;
      case 3: channel.theirs.reset(); break;
      case 4: ForeignRing::poke(memory.first(relayPageOffset(geometry)), input, act); break;
      default: ForeignRing::poke(memory.subspan(relayPageOffset(geometry)), input, act); break;
    }
    clock.advance(std::chrono::milliseconds(7));
    end.run();
    const Parting parting = end.parting();
    if (parting.text.size() > tutti::net::kMaxNoticeBytes) std::abort();
  }
  end.leave({.guilty = 0, .text = "left"});
  [[maybe_unused]] const Motor::Carried carried = end.carried();
}

void play(std::span<const std::byte> input) {
  switch (takeNumber<uint8_t>(input) % 3) {
    case 0: return hearRequest(input);
    case 1: return hearAnswer(input);
    default: return follow(input);
  }
}

}  // namespace
}  // namespace tutti::transport::net

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 0) tutti::transport::net::play(std::as_bytes(std::span(data, size)));
  return 0;
}
