#include "bootstrap/socket.h"

#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "bootstrap/outgoing.h"
#include "bootstrap/poller.h"
#include "bootstrap/trouble.h"

namespace tutti::bootstrap {
namespace {

// The kernel cuts it to net.core.somaxconn; old ones keep 16 bits of it.
constexpr int kListenBacklog = 65535;

// How long a process waits for a port: an abort waits as long for it.
constexpr std::chrono::milliseconds kPortPatience{500};

UniqueFd openSocket(int family) {
  return UniqueFd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

using NameCall = int (*)(int, sockaddr*, socklen_t*);
SocketAddress nameOf(int fd, NameCall call) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  if (call(fd, address, &size) != 0) return {};
  return SocketAddress(address);
}

template <typename Receive>
IoResult readBy(const Receive& receive) {
  for (;;) {
    const ssize_t count = receive();
    if (count > 0) return {IoState::kMoved, static_cast<size_t>(count)};
    if (count == 0) return {IoState::kClosed};
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return {};
    return {IoState::kClosed, 0, errno};
  }
}

}  // namespace

bool setOption(int fd, int level, int name, int value) {
  return ::setsockopt(fd, level, name, &value, sizeof value) == 0;
}

Listening tryListen(const SocketAddress& address) {
  Listening result{openSocket(address.family())};
  if (!result.fd) return {UniqueFd(), errno};
  // A fixed port may still be in TIME_WAIT from the previous job.
  setOption(result.fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(result.fd.get(), address.data(), address.size()) != 0 ||
      ::listen(result.fd.get(), kListenBacklog) != 0) {
    return {UniqueFd(), errno};
  }
  return result;
}

Status listenError(const SocketAddress& address, int errnoValue) {
  const std::string where = address.text();
  if (errnoValue == EADDRINUSE && address.port() == 0) {
    return makeError(Code::kSystemError,
                     fmt::format("no free port on {}: all of the range are used ({})",
                                 address.hostText(), portRange()));
  }
  if (errnoValue == EADDRNOTAVAIL) {
    return makeError(
        Code::kSystemError,
        fmt::format("cannot listen at {}: it is no address of this host. With NCCL_COMM_ID, rank 0 "
                    "must run on the host it names",
                    where));
  }
  return systemError("listen at", where, errnoValue);
}

Result<UniqueFd> listenOn(const SocketAddress& address, Clock& clock) {
  const Instant deadline = clock.now() + kPortPatience;
  for (int attempt = 1;; ++attempt) {
    Listening result = tryListen(address);
    if (result.fd) return std::move(result.fd);
    const bool mayHelp = result.errnoValue == EADDRINUSE && clock.now() < deadline;
    if (!mayHelp) return listenError(address, result.errnoValue);
    pauseFor(backoff(attempt));
  }
}

AcceptQueue acceptQueue(int listener) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(listener, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
  return {.waiting = info.tcpi_unacked, .most = info.tcpi_sacked};
}

SocketAddress localAddress(int fd) { return nameOf(fd, ::getsockname); }
SocketAddress peerAddress(int fd) { return nameOf(fd, ::getpeername); }

Connecting startConnect(const SocketAddress& address) {
  Connecting result{openSocket(address.family())};
  if (!result.fd) return {UniqueFd(), errno};
  // EINTR does not stop a connection attempt: it goes on as after EINPROGRESS.
  if (::connect(result.fd.get(), address.data(), address.size()) != 0 && errno != EINPROGRESS &&
      errno != EINTR) {
    return {UniqueFd(), errno};
  }
  return result;
}

int connectError(int fd) {
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  return error;
}

void setTcpOptions(int fd, std::chrono::milliseconds timeout) {
  setOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  setOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(timeout.count()));
  const auto thirdSeconds = static_cast<int>(timeout.count() / 3000);
  setOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  setOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, std::max(1, thirdSeconds));
  setOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, std::max(1, thirdSeconds));
  setOption(fd, IPPROTO_TCP, TCP_KEEPCNT, 2);
}

IoResult readSome(int fd, std::span<std::byte> bytes, int flags) {
  return readBy([&] { return ::recv(fd, bytes.data(), bytes.size(), flags); });
}

IoResult readSome(int fd, std::span<const iovec> pieces, int flags) {
  if (pieces.size() == 1)
    return readSome(fd, {static_cast<std::byte*>(pieces[0].iov_base), pieces[0].iov_len}, flags);
  msghdr header{};
  header.msg_iov = const_cast<iovec*>(pieces.data());
  header.msg_iovlen = pieces.size();
  return readBy([&] { return ::recvmsg(fd, &header, flags); });
}

bool isEnded(int fd) {
  std::byte one{};
  return readSome(fd, std::span(&one, 1)).state == IoState::kClosed;
}

IoResult writeSome(int fd, std::span<const std::byte> bytes) {
  for (;;) {
    const ssize_t count = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count > 0) return {IoState::kMoved, static_cast<size_t>(count)};
    if (count < 0 && errno == EINTR) continue;
    if (count == 0 || errno == EAGAIN || errno == EWOULDBLOCK) return {};
    return {IoState::kClosed, 0, errno};
  }
}

}  // namespace tutti::bootstrap
