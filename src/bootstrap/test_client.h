// Tests only: a client that speaks the protocol by hand, in pieces and with mistakes.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <string>
#include <vector>

#include "bootstrap/frame.h"
#include "bootstrap/handshake.h"
#include "bootstrap/messages.h"
#include "bootstrap/poller.h"
#include "bootstrap/socket.h"

namespace tutti::bootstrap {

class TestClient {
 public:
  explicit TestClient(const SocketAddress& address) : fd_(std::move(startConnect(address).fd)) {
    waitFor(POLLOUT);
  }

  bool isConnected() const { return fd_ && connectError(fd_.get()) == 0; }

  // Ignores a closed connection: that is what many tests are about.
  void send(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const IoResult sent = writeSome(fd_.get(), bytes);
      if (sent.state == IoState::kClosed) return;
      bytes = bytes.subspan(sent.count);
      if (sent.state == IoState::kWouldBlock) waitFor(POLLOUT);
    }
  }
  void send(const std::string& text) { send(std::as_bytes(std::span(text))); }
  void sendByteWise(std::span<const std::byte> bytes) {
    for (const std::byte& byte : bytes) send(std::span(&byte, 1));
  }

  // Up to `count` bytes; fewer when the other side closes or is silent for a minute.
  std::vector<std::byte> receive(size_t count) {
    std::vector<std::byte> all(count);
    size_t filled = 0;
    while (filled < count && waitFor(POLLIN)) {
      const IoResult read = readSome(fd_.get(), std::span(all).subspan(filled));
      if (read.state == IoState::kClosed) break;
      filled += read.count;
    }
    all.resize(filled);
    return all;
  }

  // True when the other side closes without having sent a byte.
  bool isClosedSilently() {
    std::array<std::byte, 1> byte;
    return waitFor(POLLIN) && readSome(fd_.get(), byte).state == IoState::kClosed;
  }

  // Everything up to the confirmation, which is left to the caller.
  Refusal greet(ClientHandshake& handshake) {
    send(handshake.hello());
    return handshake.feed(receive(kReplyBytes));
  }

  void endHalf() { ::shutdown(fd_.get(), SHUT_WR); }
  void close() { fd_.reset(); }

 private:
  bool waitFor(short events) {
    pollfd entry{fd_.get(), events, 0};
    return ::poll(&entry, 1, 60'000) > 0;
  }

  UniqueFd fd_;
};

}  // namespace tutti::bootstrap
