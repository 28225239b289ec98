// For tests: both ends of a TCP connection over loopback, neither of which blocks.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>

#include "base/fd.h"
#include "bootstrap/socket.h"

namespace tutti::net::socket {

struct TcpEnds {
  UniqueFd sender, receiver;
};

inline TcpEnds connectOverTcp() {
  const UniqueFd listener =
      bootstrap::listenOn(bootstrap::SocketAddress::parse("127.0.0.1:0").value()).value();
  UniqueFd sender = bootstrap::startConnect(bootstrap::localAddress(listener.get())).fd;
  pollfd coming{.fd = listener.get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&coming, 1, 10'000), 1);
  UniqueFd receiver(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  EXPECT_TRUE(sender && receiver);
  bootstrap::setTcpOptions(sender.get(), std::chrono::seconds(10));
  return {std::move(sender), std::move(receiver)};
}

}  // namespace tutti::net::socket
