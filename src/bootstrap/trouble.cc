#include "bootstrap/trouble.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/read_file.h"
#include "bootstrap/interfaces.h"

namespace tutti::bootstrap {
namespace {

std::string describeInterfaces() {
  auto all = listInterfaces();
  if (!all.ok()) return std::string(all.status().message());
  std::string text;
  for (const Interface& each : *all) {
    text += fmt::format("{}{} ({}) is {}", text.empty() ? "" : ", ", each.name,
                        each.address.hostText(), each.isUp ? "up" : "down");
  }
  return text.empty() ? "no interface has an address" : text;
}

}  // namespace

std::string portRange() {
  const std::string_view name = "net.ipv4.ip_local_port_range";
  const std::string text = readFile("/proc/sys/net/ipv4/ip_local_port_range");
  const size_t gap = text.find_first_of(" \t");
  if (gap == std::string::npos) return std::string(name);
  const size_t next = text.find_first_not_of(" \t", gap);
  const size_t end = text.find_last_not_of(" \t\n");
  return fmt::format("{}, {} to {}", name, text.substr(0, gap), text.substr(next, end + 1 - next));
}

std::string connectTrouble(int errnoValue) {
  char buffer[128] = "";
  const std::string text = strerror_r(errnoValue, buffer, sizeof buffer);
  switch (errnoValue) {
    case 0: return "it closed the connection";
    case EADDRNOTAVAIL: return fmt::format("{}: no free port for it ({})", text, portRange());
    case ENETDOWN:
    case ENETUNREACH:
    case EHOSTUNREACH: return fmt::format("{}; here {}", text, describeInterfaces());
    default: return text;
  }
}

}  // namespace tutti::bootstrap
