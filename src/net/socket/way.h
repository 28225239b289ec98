// Which of this host's interfaces a connected socket's packets leave by.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tutti::net::socket {

struct OwnEnd {
  std::string interface;  // "eth1"; empty: it is no interface's address
  std::string text;       // "eth1 (10.0.1.5)"; empty: the system has chosen none yet
  bool isLoopback = false;
};
OwnEnd ownEnd(int fd);

// Bytes that an interface has sent since it came up, everybody's; 0 where the system does not tell.
uint64_t sentBytesOf(const std::string& interface);
// The same of a table such as /proc/net/dev.
uint64_t sentBytesIn(const std::string& table, std::string_view interface);

}  // namespace tutti::net::socket
