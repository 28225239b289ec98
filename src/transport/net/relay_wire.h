// What two processes of a host share while one carries a link of the other's to another host: the
// ring, behind it a page of words, and a channel (a Unix socket) over which it was asked for.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>

#include "base/cache_lines.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/units.h"
#include "bootstrap/handoff.h"
#include "net/net.h"
#include "transport/net/net_offer.h"
#include "transport/transport.h"
#include "wire/link.h"

namespace tutti::transport::net {

// Why a side left, for the other.
struct PartingWords {
  // Nonzero once the words are there. Written once with release after them by the side that leaves,
  // read with acquire before them by the other: that pair orders them. The link's fault word does
  // not say so: the carrier's is set by whoever finds the connection's end.
  std::atomic<uint32_t> isThere;
  uint32_t bytes;
  std::array<std::byte, tutti::net::kMaxNoticeBytes> text;  // encodeParting()
};

// When the network was given a message, for the sender's profiler.
struct TakenMessage {
  std::atomic<int64_t> at;  // by the host's steady clock
  std::atomic<uint64_t> bytes;
};
inline constexpr size_t kTakenMessages = wire::kMaxSlotCount;  // as many as may be in a ring

struct RelayPage {
  PartingWords ofSender;
  PartingWords ofCarrier;
  // 1: the sender is profiled. Set before the first message, which orders it.
  std::atomic<uint32_t> wantsTimes;
  // So many messages have their times below, each at its number modulo their count. The carrier
  // writes it, with release after the times, where they are wanted; the sender reads it, with
  // acquire before them: that pair orders them. It never wraps. The ring's head says less: slots
  // are given back several together, and when tells nobody.
  std::atomic<uint64_t> takenCount;
  std::array<TakenMessage, kTakenMessages> taken;
  // What went out so far: figures for people, which publish nothing.
  std::atomic<uint64_t> messages;
  std::atomic<uint64_t> bytes;
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

inline size_t relayPageOffset(const wire::LinkGeometry& geometry) {
  return roundUp(wire::linkBytes(geometry), kCacheLineBytes);
}
inline size_t relaySegmentBytes(const wire::LinkGeometry& geometry) {
  return relayPageOffset(geometry) + sizeof(RelayPage);
}
inline RelayPage& relayPage(void* segment, const wire::LinkGeometry& geometry) {
  return *reinterpret_cast<RelayPage*>(static_cast<std::byte*>(segment) +
                                       relayPageOffset(geometry));
}

// Once a side.
void write(PartingWords& words, const Parting& parting);
// False: they are not there yet. Whatever their writer left there is no more than text.
bool read(PartingWords& words, Parting& parting);

// One message over the channel, from the sender; all is checked before it is used.
struct RelayRequest {
  uint64_t magic = kMagic;
  int32_t sender = -1;
  int32_t receiver = -1;
  uint32_t slotCount = 0;
  uint32_t slotBytes = 0;
  int32_t hostCount = 0;  // LinkOptions's
  int32_t zero = 0;
  Offer offer{};                           // the receiver's
  std::array<char, 64> senderHandoff{};    // where the ring is to be had, zero-terminated
  bootstrap::HandoffToken segmentToken{};  // for it

  static constexpr uint64_t kMagic = 0x7475747469726c79;
};
static_assert(sizeof(RelayRequest) == 32 + sizeof(Offer) + 64 + 16);

// The link that it asks for. kRemoteError for what is no request for a link.
struct AskedLink {
  wire::LinkGeometry geometry;
  NetOffer offer;
};
Result<AskedLink> readRequest(const RelayRequest& request);

// One message back. After it nothing is sent: the channel's end is the end of either side.
struct RelayAnswer {
  // kRefused: it carries nothing for this sender; kUnreachable: nor can it reach the receiver.
  enum class Outcome : uint32_t { kRefused = 0, kUnreachable = 1, kCarried = 2 };
  Outcome outcome{};
  uint32_t bytes = 0;
  std::array<char, 1016> why{};
};
static_assert(sizeof(RelayAnswer) == 1024);

// Its words, fit to be shown. kRemoteError, not logged, for what is no answer.
Result<std::string> readAnswer(const RelayAnswer& answer);

// One message, of exactly the record's length. kIdle: it has not come.
Result<Progress> tryReceiveBytes(int channel, std::span<std::byte> record);
template <typename Record>
Result<Progress> tryReceiveRecord(int channel, Record& record) {
  static_assert(std::is_trivially_copyable_v<Record>);
  return tryReceiveBytes(channel, std::as_writable_bytes(std::span(&record, 1)));
}
// Waits for it, or until somebody sets `abort`, where that is given.
struct Patience {
  Clock& clock;
  Nanoseconds timeout;
  const std::atomic<bool>* abort = nullptr;
};
Status receiveBytes(int channel, std::span<std::byte> record, const Patience& patience);
template <typename Record>
Status receiveRecord(int channel, Record& record, const Patience& patience) {
  static_assert(std::is_trivially_copyable_v<Record>);
  return receiveBytes(channel, std::as_writable_bytes(std::span(&record, 1)), patience);
}
// Whether the other side has closed the channel, or sends what nobody asked for.
bool hasGone(int channel);

}  // namespace tutti::transport::net
