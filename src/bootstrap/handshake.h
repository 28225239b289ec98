// The handshake that opens every connection of the bootstrap. Pure: bytes in, bytes out; no
// sockets, no clock, no allocation.
//
//   client → server  hello    96: magic u64, version u16, purpose u16, rank u32, target u32, seal
//   u32, epoch u64, nonce 32, MAC 32 server → client  reply    64: nonce 32, MAC 32 over hello and
//   nonce client → server  confirm  32: MAC over hello and reply
//
// All MACs are BLAKE2b under the job's key, each with its own label, so that none can stand for
// another. Both nonces are fresh: a recorded hello earns a reply that its player cannot confirm.
// docs/decisions/0002-bootstrap-handshake.md has the reasons.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/ids.h"
#include "base/rng.h"
#include "bootstrap/key.h"

namespace tutti::bootstrap {

inline constexpr size_t kHelloBytes = 96;
inline constexpr size_t kReplyBytes = 64;
inline constexpr size_t kConfirmBytes = 32;

inline constexpr uint16_t kProtocolVersion = 5;

enum class Purpose : uint16_t {
  kReport = 1,  // a rank reports to the root
  kPeer = 2,    // a rank sends to another rank
  kData = 3,    // a link between two ranks
};

// What a client says about itself. The server must still look up both ranks before it uses them.
struct Introduction {
  Purpose purpose = Purpose::kReport;
  Rank rank{0};
  Rank target{0};      // kPeer, kData: the rank it wants to send to
  uint64_t epoch = 0;  // kPeer: the session the root named; keeps two communicators of one secret
                       // apart. kData: the number of the link
  uint32_t seal = 0;   // kData: how what follows is encrypted (net/socket/pipe.h); 0: not
};

// One key a direction, so that no frame can be sent back to its sender.
struct SessionKeys {
  Key clientToServer;
  Key serverToClient;
};

enum class Refusal : uint8_t { kNone, kMagic, kVersion, kPurpose, kSecret, kConfirmation, kReply };

// "wrong secret", for the refuser's log.
std::string_view toText(Refusal refusal);

// Server's side. Small and of fixed size: what a stranger can make the server hold.
class ServerHandshake {
 public:
  // `key` outlives the object.
  ServerHandshake(const Key& key, Purpose purpose) : key_(&key), purpose_(purpose) {}

  // How many bytes may be fed next; 0 once done or refused.
  size_t wantedBytes() const;

  // Takes up to wantedBytes() bytes, in pieces of any size. Anything but kNone: close the
  // connection without a word.
  Refusal feed(std::span<const std::byte> bytes, Rng& rng);

  // The reply, once after the hello was found good; empty otherwise.
  std::span<const std::byte> takeReply();

  bool isHelloGood() const { return stage_ == Stage::kConfirm || stage_ == Stage::kDone; }
  bool isDone() const { return stage_ == Stage::kDone; }
  // REQUIRES: isHelloGood(). May be replayed by a stranger until isDone().
  const Introduction& introduction() const { return introduction_; }
  // REQUIRES: isDone().
  SessionKeys keys() const;

 private:
  enum class Stage : uint8_t { kHello, kConfirm, kDone, kRefused };

  Refusal refuse(Refusal why);
  Refusal checkHelloStart() const;
  Refusal takeHello(Rng& rng);
  Refusal takeConfirm();

  const Key* key_;
  Purpose purpose_;
  Stage stage_ = Stage::kHello;
  bool isReplyPending_ = false;
  size_t filled_ = 0;
  std::array<std::byte, kHelloBytes> hello_{};
  std::array<std::byte, kReplyBytes> reply_{};
  std::array<std::byte, kConfirmBytes> confirm_{};
  Introduction introduction_;
};

// Client's side: send hello(), feed the reply, send confirm().
class ClientHandshake {
 public:
  // `key` outlives the object.
  ClientHandshake(const Key& key, const Introduction& introduction, Rng& rng);

  std::span<const std::byte, kHelloBytes> hello() const { return hello_; }
  size_t wantedBytes() const { return isDone_ ? 0 : kReplyBytes - filled_; }
  // Takes up to wantedBytes() bytes of the reply, in pieces of any size. Anything but kNone:
  // whoever answered does not have the secret; close the connection.
  Refusal feed(std::span<const std::byte> bytes);

  bool isDone() const { return isDone_; }
  // REQUIRES: isDone().
  std::array<std::byte, kConfirmBytes> confirm() const;
  SessionKeys keys() const;

 private:
  const Key* key_;
  bool isDone_ = false;
  size_t filled_ = 0;
  std::array<std::byte, kHelloBytes> hello_{};
  std::array<std::byte, kReplyBytes> reply_{};
};

}  // namespace tutti::bootstrap
