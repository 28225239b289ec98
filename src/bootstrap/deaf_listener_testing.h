// Tests only: listeners whose system does not let in who comes.
#pragma once

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <sys/socket.h>

#include <array>
#include <stdexcept>
#include <vector>

#include "bootstrap/socket.h"

namespace tutti::bootstrap {

// In place of a queue's usual length. It holds one more.
inline UniqueFd listenWithPlacesFor(int waiting) {
  auto listener = listenOn(SocketAddress::parse("127.0.0.1:0").value());
  EXPECT_TRUE(listener.ok());
  EXPECT_EQ(::listen(listener->get(), waiting), 0);
  return std::move(listener).value();
}

// Takes all places of a queue that nobody accepts from.
class Strangers {
 public:
  explicit Strangers(int listener) {
    const SocketAddress address = localAddress(listener);
    while (!acceptQueue(listener).isFull()) {
      connections_.push_back(startConnect(address).fd);
      if (!connections_.back()) throw std::runtime_error("no connection to fill a queue with");
    }
  }
  size_t count() const { return connections_.size(); }

 private:
  std::vector<UniqueFd> connections_;
};

// Until its end, the listener's system answers who begins a connection, and drops its last
// step and all bytes, as a queue does that became full in between: who connects thinks that it is
// through.
class OnlyBeginnings {
 public:
  explicit OnlyBeginnings(int listener) : listener_(listener) {
    constexpr uint32_t kFlagsOffset = 13, kSyn = 2, kAll = ~0u;
    std::array<sock_filter, 4> program = {{
        {.code = BPF_LD | BPF_B | BPF_ABS, .jt = 0, .jf = 0, .k = kFlagsOffset},
        {.code = BPF_JMP | BPF_JSET | BPF_K, .jt = 0, .jf = 1, .k = kSyn},
        {.code = BPF_RET | BPF_K, .jt = 0, .jf = 0, .k = kAll},
        {.code = BPF_RET | BPF_K, .jt = 0, .jf = 0, .k = 0},
    }};
    const sock_fprog filter{.len = program.size(), .filter = program.data()};
    EXPECT_EQ(::setsockopt(listener_, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter), 0);
  }
  OnlyBeginnings(const OnlyBeginnings&) = delete;
  OnlyBeginnings& operator=(const OnlyBeginnings&) = delete;
  ~OnlyBeginnings() { end(); }

  void end() {
    const int unused = 0;
    ::setsockopt(listener_, SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof unused);
  }

 private:
  const int listener_;
};

}  // namespace tutti::bootstrap
