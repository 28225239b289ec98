// What ranks and root tell each other, as values and as bytes. Pure. Decoders check every field;
// what they return is in range.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "bootstrap/socket_address.h"

namespace tutti::bootstrap {

// The largest communicator the bootstrap accepts; bounds what one message can make a process
// allocate.
inline constexpr int32_t kMaxRankCount = 1 << 20;

// Where a rank's process listens and who it is.
struct Contact {
  SocketAddress address{};   // empty when the process does not listen: all its job is in it
  uint64_t processHash = 0;  // equal: same process
  std::string who{};         // "host:pid", for messages; cut to 91 bytes on the wire
};
inline constexpr size_t kContactBytes = 128;

std::vector<std::byte> encode(const Contact& contact);
std::optional<Contact> decodeContact(std::span<const std::byte> bytes);

// Who meets at one root, where a job's ranks meet at several (rank_groups.h): numbers at the root
// count from `first`, modulo `of`, and the last may be a guest of another group.
struct Circle {
  int32_t first = 0;
  int32_t of = 0;         // ranks of the job; 0: all of them meet here
  int32_t guests = 0;     // 0 or 1
  uint64_t listHash = 0;  // of the places where the job meets, which all ranks must have alike
  bool operator==(const Circle&) const = default;

  int32_t numberOf(Rank rank) const { return of == 0 ? index(rank) : (first + index(rank)) % of; }
};

// A rank reports to the root.
struct Report {
  Rank rank{0};  // both as numbers at this root
  int32_t rankCount = 1;
  std::chrono::milliseconds timeout{0};  // how long it will wait for the others
  Contact contact;
  Circle circle{};
};

std::vector<std::byte> encode(const Report& report);
// None when the bytes are no report: wrong size, a rank outside its rank count, or no such circle.
std::optional<Report> decodeReport(std::span<const std::byte> bytes);

// The root's answer when all have come.
struct Answer {
  struct Peer {
    Rank rank{0};
    Contact contact;
  };
  uint64_t epoch = 0;       // names this meeting: a later one with the same id has another
  std::vector<Peer> peers;  // those that an all-gather of the members talks to; besides, the guest
                            // of the first one, and the first one of the guest
};

std::vector<std::byte> encode(const Answer& answer);
std::optional<Answer> decodeAnswer(std::span<const std::byte> bytes, int32_t rankCount);

// What a sign of life may say besides.
inline constexpr size_t kMaxWordsBytes = 2048;

// What is known of a peer that was probed.
struct Sign {
  Instant last{};                    // when its process last gave a sign of life
  std::vector<std::byte> words{};    // what it said last, if it ever said anything, ...
  std::optional<Instant> askedAt{};  // ... and when it was asked for that, if it was: no earlier
};

// The root's answer when the job cannot start.
std::vector<std::byte> encode(const Status& failure);
// Never ok: bytes that cannot be read are a kRemoteError too. Logs it, as every rank's own log
// should say why it failed.
Status decodeFailure(std::span<const std::byte> bytes);

}  // namespace tutti::bootstrap
