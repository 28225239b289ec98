// libFuzzer entry: what comes over a link's connections, in the clear, with checksums, sealed; in
// pieces that cut it anywhere. Build with clang -fsanitize=fuzzer,address.
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>

#include "net/foreign_testing.h"
#include "net/socket/socket_connection.h"

namespace tutti::net::socket {
namespace {

using bootstrap::IoState;
using Bytes = std::vector<std::byte>;

constexpr size_t kSlotBytes = 128u << 10;
constexpr size_t kMostBytes = 256u << 10;  // of all streams of a script
constexpr size_t kMostStreams = 3;
// Zeros are empty messages, 32,768 of them in a long stream: they took nearly all the time. Nothing
// depends on more of a message's number than whether it is the first, and it modulo 2, 3 and 64.
constexpr size_t kMostMessages = 4 * 64;

struct Script {
  size_t streamCount = 1;
  bool isChecked = false;
  std::array<Bytes, kMostStreams> streams;
};

// Chunks, each with a byte that says of which stream it is and whether its bytes follow or are
// zeros, so many as the next byte says, or 256 times so many: long payloads of few bytes of input.
Script read(std::span<const std::byte> input, uint8_t setting) {
  Script script{
      .streamCount = 1u + setting % kMostStreams, .isChecked = (setting & 64) != 0, .streams = {}};
  size_t left = kMostBytes;
  while (!input.empty()) {
    const auto kind = takeNumber<uint8_t>(input);
    const size_t count = takeNumber<uint8_t>(input);
    Bytes& stream = script.streams[kind % script.streamCount];
    if (kind < 128) {
      const auto bytes = takeFront(input, std::min(count, left));
      stream.insert(stream.end(), bytes.begin(), bytes.end());
      left -= bytes.size();
    } else {
      const size_t bytes = std::min(count * 256, left);
      stream.insert(stream.end(), bytes, std::byte{0});
      left -= bytes;
    }
  }
  return script;
}

// How the bytes travel: sealed by who knows the keys, or by a stranger, who cannot.
enum class Travel : uint8_t { kPlain, kSealed, kForged };

bootstrap::Key keyOf(unsigned char fill) {
  bootstrap::Key key;
  std::ranges::fill(key.bytes(), fill);
  return key;
}

Pipe pipeOver(int fd, bool isSealed, bool isReader) {
  const bootstrap::Key forth = keyOf(1), back = keyOf(2);
  if (!isSealed) return Pipe(UniqueFd(fd));
  return Pipe(UniqueFd(fd), Cipher::kChaCha20Poly1305,
              isReader ? PipeKeys{.send = back, .receive = forth}
                       : PipeKeys{.send = forth, .receive = back});
}

// The far ends.
class Peer {
 public:
  explicit Peer(const Script& script) : script_(script) {}
  void add(Pipe pipe) { streams_.push_back({.pipe = std::move(pipe)}); }
  // So much of each stream, or what there is room for; behind its bytes its connection ends. False:
  // nothing more will come.
  bool writeSome(size_t most) {
    bool isOpen = false;
    for (size_t i = 0; i < streams_.size(); ++i) {
      Stream& stream = streams_[i];
      if (!stream.pipe) continue;
      const auto rest = std::span(script_.streams[i]).subspan(stream.written);
      if (rest.empty()) {
        stream.pipe.reset();
        continue;
      }
      isOpen = true;
      const iovec piece{.iov_base = const_cast<std::byte*>(rest.data()),
                        .iov_len = std::min(rest.size(), most)};
      const bootstrap::IoResult result = stream.pipe->write({&piece, 1});
      if (result.state == IoState::kMoved) stream.written += result.count;
    }
    return isOpen;
  }

 private:
  struct Stream {
    std::optional<Pipe> pipe;
    size_t written = 0;
  };
  const Script& script_;
  std::vector<Stream> streams_;
};

// False: nothing more comes, or enough has.
bool goesOn(const Brought& brought) {
  return brought.end.empty() && brought.labels.size() < kMostMessages;
}

Brought play(const Script& script, size_t piece, Travel travel) {
  Peer peer(script);
  std::vector<Pipe> pipes;
  for (size_t i = 0; i < script.streamCount; ++i) {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0)
      std::abort();
    pipes.push_back(pipeOver(ends[0], travel != Travel::kPlain, true));
    peer.add(pipeOver(ends[1], travel == Travel::kSealed, false));
  }
  SocketConnection connection(std::move(pipes), "rank 3", nullptr, script.isChecked);
  Reader reader(connection, kSlotBytes);
  for (bool isOpen = true; isOpen;) {
    isOpen = peer.writeSome(piece);
    while (goesOn(reader.brought()) && reader.takeOne()) {
    }
    if (!goesOn(reader.brought())) return reader.brought();
  }
  // A look may say that there is nothing without having looked; then come what was staged and the
  // end.
  for (int looks = 0; goesOn(reader.brought()); ++looks) {
    reader.takeOne();
    if (looks > 100'000) std::abort();
  }
  return reader.brought();
}

// The first byte is the setting, the second the size of the pieces less one, in units of 7 bytes.
void play(std::span<const std::byte> input) {
  const auto setting = takeNumber<uint8_t>(input);
  const size_t piece = 1 + size_t{7} * takeNumber<uint8_t>(input);
  const Script script = read(input, setting);
  // What comes out is the same however it was cut and sealed.
  const Brought whole = play(script, kMostBytes, Travel::kPlain);
  if ((setting & 128) == 0) {
    size_t bytes = 0;
    for (const Bytes& each : script.streams) bytes += each.size();
    if (play(script, std::max(piece, bytes / 256), Travel::kPlain) != whole) std::abort();
  } else {
    if (play(script, kMostBytes, Travel::kSealed) != whole) std::abort();
    if (!play(script, kMostBytes, Travel::kForged).labels.empty()) std::abort();
  }
}

}  // namespace
}  // namespace tutti::net::socket

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 0) tutti::net::socket::play(std::as_bytes(std::span(data, size)));
  return 0;
}
