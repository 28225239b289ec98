#include "bootstrap/handshake.h"

#include <algorithm>
#include <cstring>

#include "bootstrap/bytes.h"

namespace tutti::bootstrap {
namespace {

// "tuttiBS" and a byte above 0x7f, which no text protocol sends.
constexpr uint64_t kMagic = 0x9353426974747574u;

constexpr size_t kVersionAt = 8;
constexpr size_t kPurposeAt = 10;
constexpr size_t kRankAt = 12;
constexpr size_t kTargetAt = 16;
constexpr size_t kSealAt = 20;
constexpr size_t kEpochAt = 24;
constexpr size_t kNonceAt = 32;
constexpr size_t kNonceBytes = 32;
constexpr size_t kHelloMacAt = 64;
constexpr size_t kReplyMacAt = 32;

using Bytes = std::span<const std::byte>;
using Mac = std::array<std::byte, 32>;

Mac macOf(const Key& key, std::string_view label, Bytes first, Bytes second = {}) {
  Mac mac;
  keyedHash(key, label, {first, second}, mac);
  return mac;
}

Mac helloMac(const Key& key, Bytes hello) {
  return macOf(key, "tutti hello", hello.first(kHelloMacAt));
}
Mac replyMac(const Key& key, Bytes hello, Bytes reply) {
  return macOf(key, "tutti reply", hello, reply.first(kReplyMacAt));
}
Mac confirmMac(const Key& key, Bytes hello, Bytes reply) {
  return macOf(key, "tutti confirm", hello, reply);
}

// Purpose, ranks and epoch are in the hello, so each connection's keys are bound to them.
SessionKeys deriveKeys(const Key& key, Bytes hello, Bytes reply) {
  SessionKeys keys;
  keyedHash(key, "tutti client to server", {hello, reply},
            std::as_writable_bytes(keys.clientToServer.bytes()));
  keyedHash(key, "tutti server to client", {hello, reply},
            std::as_writable_bytes(keys.serverToClient.bytes()));
  return keys;
}

// Copies into a field that is filled piece by piece. Returns how much it took.
size_t fill(std::span<std::byte> field, size_t filled, Bytes bytes) {
  const size_t count = std::min(bytes.size(), field.size() - filled);
  std::copy_n(bytes.begin(), count, field.begin() + static_cast<ptrdiff_t>(filled));
  return count;
}

}  // namespace

std::string_view toText(Refusal refusal) {
  switch (refusal) {
    case Refusal::kNone: return "none";
    case Refusal::kMagic: return "not the protocol of this library";
    case Refusal::kVersion: return "another version of the bootstrap protocol";
    case Refusal::kPurpose: return "a connection meant for another service";
    case Refusal::kSecret: return "wrong secret (another job's id, or another TUTTI_SECRET_FILE)";
    case Refusal::kConfirmation: return "wrong confirmation (a replayed hello)";
    case Refusal::kReply: return "the server does not know the secret";
  }
  return "";
}

size_t ServerHandshake::wantedBytes() const {
  switch (stage_) {
    case Stage::kHello: return kHelloBytes - filled_;
    case Stage::kConfirm: return kConfirmBytes - filled_;
    case Stage::kDone:
    case Stage::kRefused: return 0;
  }
  return 0;
}

Refusal ServerHandshake::feed(std::span<const std::byte> bytes, Rng& rng) {
  if (stage_ == Stage::kHello) {
    filled_ += fill(hello_, filled_, bytes);
    if (const Refusal early = checkHelloStart(); early != Refusal::kNone) return refuse(early);
    return filled_ == kHelloBytes ? takeHello(rng) : Refusal::kNone;
  }
  if (stage_ == Stage::kConfirm) {
    filled_ += fill(confirm_, filled_, bytes);
    return filled_ == kConfirmBytes ? takeConfirm() : Refusal::kNone;
  }
  return Refusal::kNone;
}

std::span<const std::byte> ServerHandshake::takeReply() {
  if (!isReplyPending_) return {};
  isReplyPending_ = false;
  return reply_;
}

SessionKeys ServerHandshake::keys() const { return deriveKeys(*key_, hello_, reply_); }

Refusal ServerHandshake::refuse(Refusal why) {
  stage_ = Stage::kRefused;
  return why;
}

// What can be told before the hello is complete is told at once: a scanner's first bytes are enough
// to refuse it.
Refusal ServerHandshake::checkHelloStart() const {
  std::array<std::byte, sizeof kMagic> magic;
  storeLittle(magic.data(), kMagic);
  const size_t seen = std::min(filled_, magic.size());
  if (!std::equal(magic.begin(), magic.begin() + static_cast<ptrdiff_t>(seen), hello_.begin())) {
    return Refusal::kMagic;
  }
  const bool hasVersion = filled_ >= kPurposeAt;
  if (hasVersion && loadLittle<uint16_t>(&hello_[kVersionAt]) != kProtocolVersion) {
    return Refusal::kVersion;
  }
  return Refusal::kNone;
}

Refusal ServerHandshake::takeHello(Rng& rng) {
  if (!equalInConstantTime(helloMac(*key_, hello_), Bytes(hello_).subspan(kHelloMacAt))) {
    return refuse(Refusal::kSecret);
  }
  const auto purpose = loadLittle<uint16_t>(&hello_[kPurposeAt]);
  if (purpose != static_cast<uint16_t>(purpose_)) return refuse(Refusal::kPurpose);
  introduction_ = {.purpose = purpose_,
                   .rank = Rank{loadLittle<int32_t>(&hello_[kRankAt])},
                   .target = Rank{loadLittle<int32_t>(&hello_[kTargetAt])},
                   .epoch = loadLittle<uint64_t>(&hello_[kEpochAt]),
                   .seal = loadLittle<uint32_t>(&hello_[kSealAt])};
  rng.fill(std::span(reply_).first(kNonceBytes));
  const Mac mac = replyMac(*key_, hello_, reply_);
  std::copy(mac.begin(), mac.end(), reply_.begin() + kReplyMacAt);
  isReplyPending_ = true;
  filled_ = 0;
  stage_ = Stage::kConfirm;
  return Refusal::kNone;
}

Refusal ServerHandshake::takeConfirm() {
  if (!equalInConstantTime(confirmMac(*key_, hello_, reply_), confirm_)) {
    return refuse(Refusal::kConfirmation);
  }
  stage_ = Stage::kDone;
  return Refusal::kNone;
}

ClientHandshake::ClientHandshake(const Key& key, const Introduction& introduction, Rng& rng)
    : key_(&key) {
  storeLittle(hello_.data(), kMagic);
  storeLittle(&hello_[kVersionAt], kProtocolVersion);
  storeLittle(&hello_[kPurposeAt], static_cast<uint16_t>(introduction.purpose));
  storeLittle(&hello_[kRankAt], index(introduction.rank));
  storeLittle(&hello_[kTargetAt], index(introduction.target));
  storeLittle(&hello_[kSealAt], introduction.seal);
  storeLittle(&hello_[kEpochAt], introduction.epoch);
  rng.fill(std::span(hello_).subspan(kNonceAt, kNonceBytes));
  const Mac mac = helloMac(key, hello_);
  std::copy(mac.begin(), mac.end(), hello_.begin() + kHelloMacAt);
}

Refusal ClientHandshake::feed(std::span<const std::byte> bytes) {
  if (isDone_) return Refusal::kNone;
  filled_ += fill(reply_, filled_, bytes);
  if (filled_ < kReplyBytes) return Refusal::kNone;
  if (!equalInConstantTime(replyMac(*key_, hello_, reply_), Bytes(reply_).subspan(kReplyMacAt))) {
    filled_ = 0;
    return Refusal::kReply;
  }
  isDone_ = true;
  return Refusal::kNone;
}

std::array<std::byte, kConfirmBytes> ClientHandshake::confirm() const {
  return confirmMac(*key_, hello_, reply_);
}

SessionKeys ClientHandshake::keys() const { return deriveKeys(*key_, hello_, reply_); }

}  // namespace tutti::bootstrap
