#include "net/socket/way.h"

#include <fmt/core.h>

#include <sstream>

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

// A line is the name, a colon, eight counters of what came, the bytes first, and the bytes sent.
// Short names are padded, long ones are not.
InterfaceBytes bytesIn(const std::string& table, std::string_view interface) {
  constexpr int kPlace = 8;
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    line[colon] = ' ';
    std::istringstream fields(line);
    std::string name;
    fields >> name;
    if (name != interface) continue;
    InterfaceBytes bytes;
    fields >> bytes.received;
    for (int place = 1; place <= kPlace; ++place) fields >> bytes.sent;
    return fields ? bytes : InterfaceBytes{};
  }
  return {};
}

// The table in /proc is that of the thread's own network namespace, which /sys is not.
InterfaceBytes bytesOf(const std::string& interface) {
  return bytesIn(readFile("/proc/net/dev"), interface);
}

}  // namespace tutti::net::socket
