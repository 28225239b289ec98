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

// Bytes that an interface has moved since it came up, everybody's; 0 where the system does not
// tell.
struct InterfaceBytes {
  uint64_t sent = 0;
  uint64_t received = 0;
};
InterfaceBytes bytesOf(const std::string& interface);
// The same of a table such as /proc/net/dev.
InterfaceBytes bytesIn(const std::string& table, std::string_view interface);

}  // namespace tutti::net::socket
