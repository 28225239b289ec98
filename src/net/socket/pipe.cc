#include "net/socket/pipe.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sodium.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/cache_lines.h"
#include "base/units.h"
#include "bootstrap/bytes.h"

namespace tutti::net::socket {
namespace {

using bootstrap::IoResult;
using bootstrap::IoState;
using bootstrap::nonceOf;
using bootstrap::raw;

constexpr size_t kLengthBytes = 4;
constexpr size_t kTagBytes = 16;
// Plain bytes of a record at most: two of them, plain and sealed, stay in a core's own cache.
constexpr size_t kRecordBytes = 16_KiB;
constexpr size_t kSealedBytes = kLengthBytes + kRecordBytes + kTagBytes;
// Records that go out by one system call. The other side opens them while the next are sealed:
// with 4 of 32 KiB a round trip of 64 KiB took 205 us, with one of them 176, of 16 KiB 165, with
// two of 16 KiB 154; of 256 KiB 570, 522, 556, 465 (2 CPUs of an Intel Xeon VM, 2026-11-23).
constexpr size_t kSealedTogether = 2;
// Records that come in by one system call.
constexpr size_t kReadTogether = 4;
constexpr size_t kGatheredBytes = 4_KiB + kCacheLineBytes;

static_assert(crypto_aead_aes256gcm_ABYTES == kTagBytes);
static_assert(crypto_aead_chacha20poly1305_ietf_ABYTES == kTagBytes);
static_assert(crypto_aead_aes256gcm_NPUBBYTES == bootstrap::kCounterNonceBytes);
static_assert(crypto_aead_chacha20poly1305_ietf_NPUBBYTES == bootstrap::kCounterNonceBytes);
static_assert(crypto_aead_aes256gcm_KEYBYTES == sizeof(bootstrap::Key));
static_assert(crypto_aead_chacha20poly1305_ietf_KEYBYTES == sizeof(bootstrap::Key));

IoResult again() { return {.state = IoState::kWouldBlock, .count = 0, .errnoValue = 0}; }
IoResult moved(size_t count) { return {.state = IoState::kMoved, .count = count, .errnoValue = 0}; }
IoResult closed(int errnoValue) {
  return {.state = IoState::kClosed, .count = 0, .errnoValue = errnoValue};
}

size_t bytesIn(std::span<const iovec> pieces) {
  size_t sum = 0;
  for (const iovec& piece : pieces) sum += piece.iov_len;
  return sum;
}

// Calls copy(byte of a piece, so many) for the bytes from `skip` on, `count` at most.
template <typename Copy>
void forBytes(std::span<const iovec> pieces, size_t skip, size_t count, const Copy& copy) {
  for (const iovec& piece : pieces) {
    const size_t skipped = std::min(skip, piece.iov_len);
    skip -= skipped;
    const size_t some = std::min(piece.iov_len - skipped, count);
    if (some > 0) copy(static_cast<std::byte*>(piece.iov_base) + skipped, some);
    count -= some;
    if (count == 0) return;
  }
}

// One direction's: a key, and the number of the next record.
class Box {
 public:
  Box(Cipher cipher, const bootstrap::Key& key) : cipher_(cipher), key_(key) {
    if (cipher_ == Cipher::kAes256Gcm) crypto_aead_aes256gcm_beforenm(&aes_, key_.bytes().data());
  }
  ~Box() { sodium_memzero(&aes_, sizeof aes_); }
  Box(const Box&) = delete;
  Box& operator=(const Box&) = delete;

  // sealed: room for the length, the plain bytes and the tag. In place where `plain` lies behind
  // the length.
  void seal(std::span<const std::byte> plain, std::byte* sealed) {
    bootstrap::storeLittle(sealed, static_cast<uint32_t>(plain.size()));
    const auto nonce = nonceOf(number_++);
    unsigned char* into = raw(sealed + kLengthBytes);
    if (cipher_ == Cipher::kAes256Gcm) {
      crypto_aead_aes256gcm_encrypt_afternm(into, nullptr, raw(plain.data()), plain.size(),
                                            raw(sealed), kLengthBytes, nullptr, nonce.data(),
                                            &aes_);
    } else {
      crypto_aead_chacha20poly1305_ietf_encrypt(into, nullptr, raw(plain.data()), plain.size(),
                                                raw(sealed), kLengthBytes, nullptr, nonce.data(),
                                                key_.bytes().data());
    }
  }

  // False: it is not the next record.
  bool open(std::span<const std::byte> sealed, std::byte* plain) {
    const auto nonce = nonceOf(number_++);
    const unsigned char* from = raw(sealed.data() + kLengthBytes);
    const size_t bytes = sealed.size() - kLengthBytes;
    if (cipher_ == Cipher::kAes256Gcm) {
      return crypto_aead_aes256gcm_decrypt_afternm(raw(plain), nullptr, nullptr, from, bytes,
                                                   raw(sealed.data()), kLengthBytes, nonce.data(),
                                                   &aes_) == 0;
    }
    return crypto_aead_chacha20poly1305_ietf_decrypt(raw(plain), nullptr, nullptr, from, bytes,
                                                     raw(sealed.data()), kLengthBytes, nonce.data(),
                                                     key_.bytes().data()) == 0;
  }

 private:
  const Cipher cipher_;
  const bootstrap::Key key_;
  uint64_t number_ = 0;  // wraps after more bytes than any wire carries
  crypto_aead_aes256gcm_state aes_{};
};

}  // namespace

std::string_view toText(Cipher cipher) {
  switch (cipher) {
    case Cipher::kNone: return "in the clear";
    case Cipher::kChaCha20Poly1305: return "ChaCha20-Poly1305";
    case Cipher::kAes256Gcm: return "AES-256-GCM";
  }
  return "";
}

bool isKnown(Cipher cipher) {
  return cipher == Cipher::kNone || cipher == Cipher::kChaCha20Poly1305 ||
         (cipher == Cipher::kAes256Gcm && hasAes());
}

bool hasAes() {
  // libsodium looks at the processor when it is initialised, and says no before.
  static const bool has = sodium_init() >= 0 && crypto_aead_aes256gcm_is_available() == 1;
  return has;
}

class Pipe::Seal {
 public:
  Seal(Cipher cipher, const PipeKeys& keys)
      : sending_(cipher, keys.send), receiving_(cipher, keys.receive) {}
  ~Seal() { sodium_memzero(plain_.data(), plain_.size()); }

  IoResult write(int fd, std::span<const iovec> pieces) {
    if (out_.empty()) sealSome(pieces);
    if (out_.empty()) return again();
    while (written_ < out_.size()) {
      const IoResult sent = bootstrap::writeSome(fd, std::span(out_).subspan(written_));
      if (sent.state != IoState::kMoved) return sent;
      written_ += sent.count;
    }
    out_.clear();
    written_ = 0;
    return moved(std::exchange(covered_, 0));
  }

  IoResult read(int fd, Intake& intake, std::span<const iovec> pieces) {
    const size_t wanted = bytesIn(pieces);
    size_t got = 0;
    while (!isBroken_) {
      got += takePlain(pieces, got, wanted - got);
      if (got == wanted) return moved(got);
      if (hasRecord()) {
        const std::span<std::byte> place = placeIn(pieces, got);
        const size_t bytes = recordBytes();
        const bool isDirect = place.size() >= bytes;
        isBroken_ = !openNext(isDirect ? place.data() : nullptr);
        if (isDirect) got += bytes;
        continue;
      }
      isBroken_ = isGarbled();
      if (isBroken_) break;
      const IoResult read = fill(fd, intake);
      if (read.state == IoState::kMoved) continue;
      // What came before an end is read first; the end is found again.
      return got > 0 ? moved(got) : read;
    }
    return closed(EBADMSG);
  }

  bool hasMore() const { return plainBegin_ != plainEnd_ || hasRecord(); }

 private:
  // A batch of records of what is to be sent.
  void sealSome(std::span<const iovec> pieces) {
    const size_t all = std::min(bytesIn(pieces), kSealedTogether * kRecordBytes);
    for (size_t at = 0; at < all;) {
      const size_t some = std::min(all - at, kRecordBytes);
      const size_t begin = out_.size();
      out_.resize(begin + kLengthBytes + some + kTagBytes);
      std::byte* record = out_.data() + begin;
      std::byte* plain = record + kLengthBytes;
      size_t copied = 0;
      bool isWhole = false;  // one piece has it all: it is sealed out of its place
      forBytes(pieces, at, some, [&](std::byte* bytes, size_t count) {
        isWhole = count == some;
        if (isWhole) {
          sending_.seal({bytes, count}, record);
        } else {
          std::memcpy(plain + copied, bytes, count);
        }
        copied += count;
      });
      if (!isWhole) sending_.seal({plain, some}, record);
      at += some;
    }
    covered_ = all;
  }

  size_t takePlain(std::span<const iovec> pieces, size_t at, size_t most) {
    const size_t some = std::min(most, plainEnd_ - plainBegin_);
    forBytes(pieces, at, some, [this](std::byte* bytes, size_t count) {
      std::memcpy(bytes, plain_.data() + plainBegin_, count);
      plainBegin_ += count;
    });
    return some;
  }
  // What is left of the piece at hand.
  static std::span<std::byte> placeIn(std::span<const iovec> pieces, size_t at) {
    for (const iovec& piece : pieces) {
      if (at < piece.iov_len)
        return {static_cast<std::byte*>(piece.iov_base) + at, piece.iov_len - at};
      at -= piece.iov_len;
    }
    return {};
  }

  size_t staged() const { return inEnd_ - inBegin_; }
  size_t recordBytes() const { return bootstrap::loadLittle<uint32_t>(in_.data() + inBegin_); }
  bool isGarbled() const {
    return staged() >= kLengthBytes && (recordBytes() == 0 || recordBytes() > kRecordBytes);
  }
  bool hasRecord() const {
    return staged() >= kLengthBytes && !isGarbled() &&
           staged() >= kLengthBytes + recordBytes() + kTagBytes;
  }
  // Into this place; null: to be taken later.
  bool openNext(std::byte* place) {
    const size_t bytes = recordBytes();
    const std::span record(in_.data() + inBegin_, kLengthBytes + bytes + kTagBytes);
    if (!receiving_.open(record, place != nullptr ? place : plain_.data())) return false;
    inBegin_ += record.size();
    if (place == nullptr) {
      plainBegin_ = 0;
      plainEnd_ = bytes;
    }
    return true;
  }
  IoResult fill(int fd, Intake& intake) {
    std::memmove(in_.data(), in_.data() + inBegin_, staged());
    inEnd_ -= std::exchange(inBegin_, 0);
    const iovec room{.iov_base = in_.data() + inEnd_, .iov_len = in_.size() - inEnd_};
    const IoResult read = intake.read(fd, {&room, 1});
    if (read.state == IoState::kMoved) inEnd_ += read.count;
    return read;
  }

  Box sending_;
  std::vector<std::byte> out_;  // sealed, of which the first are written
  size_t written_ = 0;
  size_t covered_ = 0;  // the plain bytes that it stands for

  Box receiving_;
  bool isBroken_ = false;  // a record did not open: nothing behind it is looked at
  std::vector<std::byte> in_ = std::vector<std::byte>(kReadTogether * kSealedBytes);  // sealed
  size_t inBegin_ = 0;
  size_t inEnd_ = 0;
  std::vector<std::byte> plain_ = std::vector<std::byte>(kRecordBytes);  // opened, not taken yet
  size_t plainBegin_ = 0;
  size_t plainEnd_ = 0;
};

Pipe::Pipe(UniqueFd fd) : fd_(std::move(fd)) {}
// The other side may compute for as long as it likes before it reads on, and a slow wire's
// acknowledgements come late: neither is the end of the connection. Of a host that vanished the
// ranks hear no sign of life.
Pipe::Pipe(UniqueFd fd, Cipher cipher, const PipeKeys& keys) : fd_(std::move(fd)) {
  constexpr int kForever = 0;
  bootstrap::setOption(fd_.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, kForever);
  if (cipher != Cipher::kNone) seal_ = std::make_unique<Seal>(cipher, keys);
}
Pipe::Pipe(Pipe&& other) noexcept = default;
Pipe& Pipe::operator=(Pipe&& other) noexcept = default;
Pipe::~Pipe() {
  if (fd_) intake_.settle(fd_.get());
}

void Pipe::boundSendBuffer(size_t mbit) {
  sendBuffer_ = SendBuffer(mbit);
  bound(sendBuffer_, fd_.get());
}

IoResult Pipe::write(std::span<const iovec> pieces) {
  const IoResult result = seal_ ? seal_->write(fd_.get(), pieces) : writePlain(pieces);
  if (result.state == IoState::kMoved && sendBuffer_.isDue(result.count)) [[unlikely]]
    bound(sendBuffer_, fd_.get());
  return result;
}

// A label and its payload in one piece cost the system less than two do: 0.2 us, up to 4 KiB (2
// CPUs of an AMD EPYC VM, 2026-11-24).
IoResult Pipe::writePlain(std::span<const iovec> pieces) {
  const size_t bytes = bytesIn(pieces);
  if (pieces.size() > 1 && bytes <= kGatheredBytes) {
    alignas(kCacheLineBytes) std::array<std::byte, kGatheredBytes> line;
    std::byte* to = line.data();
    forBytes(pieces, 0, bytes, [&to](const std::byte* from, size_t count) {
      std::memcpy(to, from, count);
      to += count;
    });
    return bootstrap::writeSome(fd_.get(), std::span(line).first(bytes));
  }
  msghdr header{};
  header.msg_iov = const_cast<iovec*>(pieces.data());
  header.msg_iovlen = pieces.size();
  for (;;) {
    const ssize_t written = ::sendmsg(fd_.get(), &header, MSG_NOSIGNAL);
    if (written >= 0) return moved(static_cast<size_t>(written));
    if (errno == EAGAIN || errno == EWOULDBLOCK) return again();
    if (errno != EINTR) return closed(errno);
  }
}

void Pipe::holdAcks() {
  // Without it messages are later, not lost.
  bootstrap::setOption(fd_.get(), IPPROTO_TCP, TCP_QUICKACK, 0);
}

bool Pipe::hasMore() const { return seal_ && seal_->hasMore(); }

IoResult Pipe::read(std::span<const iovec> pieces) {
  return seal_ ? seal_->read(fd_.get(), intake_, pieces) : intake_.read(fd_.get(), pieces);
}

}  // namespace tutti::net::socket
