// Sockets as the bootstrap uses them: close-on-exec, never blocking, no SIGPIPE, EINTR handled here
// and nowhere else.
#pragma once

#include <sys/uio.h>

#include <chrono>
#include <cstddef>
#include <span>
#include <string_view>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "bootstrap/socket_address.h"

namespace tutti::bootstrap {

// A listening TCP socket bound to exactly this address; port 0 takes a free one. errnoValue: why it
// failed, so that a caller may wait for an address in use; kSystemError's text is made by
// listenError().
struct Listening {
  UniqueFd fd;
  int errnoValue = 0;
};
Listening tryListen(const SocketAddress& address);
Status listenError(const SocketAddress& address, int errnoValue);
// Tries again for half a second where the port, or every port, is in use: they come and go.
Result<UniqueFd> listenOn(const SocketAddress& address, Clock& clock = steadyClock());

// Those whose connection is complete and not accepted. Whoever comes while it is full is not heard:
// the system drops the packet.
struct AcceptQueue {
  uint32_t waiting = 0;
  uint32_t most = 0;
  bool isFull() const { return waiting > most; }  // the system takes one more than it was told
};
AcceptQueue acceptQueue(int listener);

SocketAddress localAddress(int fd);
SocketAddress peerAddress(int fd);

// Starts connecting. Writable means done: then connectError() tells how it went. An immediate
// failure is in errnoValue.
struct Connecting {
  UniqueFd fd;
  int errnoValue = 0;
};
Connecting startConnect(const SocketAddress& address);
int connectError(int fd);

// False: the system does not have it, which costs speed or detection time, not correctness.
bool setOption(int fd, int level, int name, int value);

// Small messages at once, and a peer whose host vanished is found within `timeout`.
void setTcpOptions(int fd, std::chrono::milliseconds timeout);

enum class IoState : uint8_t { kMoved, kWouldBlock, kClosed };
struct IoResult {
  IoState state = IoState::kWouldBlock;
  size_t count = 0;    // kMoved: bytes read or written, at least 1
  int errnoValue = 0;  // kClosed: why, 0 for an orderly end
};
// `flags` are recv()'s.
IoResult readSome(int fd, std::span<std::byte> bytes, int flags = 0);
IoResult readSome(int fd, std::span<const iovec> pieces, int flags = 0);
IoResult writeSome(int fd, std::span<const std::byte> bytes);
// Of a connection over which nothing is to come now: whether its other side has ended it.
bool isEnded(int fd);

}  // namespace tutti::bootstrap
