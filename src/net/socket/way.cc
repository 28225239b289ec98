#include "net/socket/way.h"

#include <fmt/core.h>

#include <charconv>
#include <string_view>

#include "base/read_file.h"
#include "bootstrap/interfaces.h"
#include "bootstrap/socket.h"

namespace tutti::net::socket {

OwnEnd ownEnd(int fd) {
  const bootstrap::SocketAddress own = bootstrap::localAddress(fd);
  auto all = bootstrap::listInterfaces();
  if (own.port() == 0 || !all.ok()) return {};
  for (const bootstrap::Interface& each : *all) {
    if (!each.address.isSameHost(own)) continue;
    return {.interface = each.name,
            .text = fmt::format("{} ({})", each.name, own.hostText()),
            .isLoopback = each.isLoopback};
  }
  return {.interface = {}, .text = own.hostText()};
}

// A line of /proc/net/dev, which unlike /sys is that of the thread's own network namespace: the
// name, a colon, eight counters of what came, and the bytes sent.
uint64_t sentBytesOf(const std::string& interface) {
  constexpr int kPlace = 8;
  const std::string text = readFile("/proc/net/dev");
  size_t at = text.find(" " + interface + ":");
  if (at == std::string::npos) return 0;
  at += interface.size() + 2;
  for (int place = 0;; ++place) {
    at = text.find_first_not_of(' ', at);
    if (at == std::string::npos) return 0;
    if (place == kPlace) break;
    at = text.find(' ', at);
  }
  uint64_t bytes = 0;
  std::from_chars(text.data() + at, text.data() + text.size(), bytes);
  return bytes;
}

}  // namespace tutti::net::socket
