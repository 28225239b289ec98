#include "bootstrap/socket_address.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>

#include <charconv>
#include <cstring>

namespace tutti::bootstrap {
namespace {

constexpr unsigned char kWireNone = 0;
constexpr unsigned char kWireV4 = 4;
constexpr unsigned char kWireV6 = 6;

struct HostAndPort {
  std::string host;
  uint16_t port = 0;
  bool isBracketed = false;
};

Status badAddress(std::string_view text, std::string_view why) {
  return invalidArgument("address \"{}\": {}; wanted host:port or [IPv6]:port", text, why);
}

Result<HostAndPort> splitHostAndPort(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return badAddress(text, "no port");
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  HostAndPort parts;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, parts.port);
  if (digits.empty() || error != std::errc() || stop != end) {
    return badAddress(text, "the port is not a number from 0 to 65535");
  }
  parts.isBracketed = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (parts.isBracketed) host = host.substr(1, host.size() - 2);
  if (host.empty()) return badAddress(text, "no host");
  if (!parts.isBracketed && host.find(':') != std::string_view::npos) {
    return badAddress(text, "an IPv6 address needs brackets");
  }
  if (host.find('\0') != std::string_view::npos) return badAddress(text, "a zero byte in it");
  parts.host = std::string(host);
  return parts;
}

// The interface index in "fe80::1%eth0" or "fe80::1%2"; 0 when it names none.
uint32_t parseScope(const std::string& name) {
  if (const unsigned found = if_nametoindex(name.c_str()); found != 0) return found;
  uint32_t number = 0;
  const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  return error == std::errc() && stop == name.data() + name.size() ? number : 0;
}

bool parseV6(const std::string& host, sockaddr_in6& address) {
  const size_t percent = host.find('%');
  if (inet_pton(AF_INET6, host.substr(0, percent).c_str(), &address.sin6_addr) != 1) return false;
  address.sin6_family = AF_INET6;
  if (percent == std::string::npos) return true;
  address.sin6_scope_id = parseScope(host.substr(percent + 1));
  return address.sin6_scope_id != 0;
}

bool parseNumeric(const HostAndPort& parts, SocketAddress& result) {
  sockaddr_in v4{};
  if (!parts.isBracketed && inet_pton(AF_INET, parts.host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    result = SocketAddress(v4).withPort(parts.port);
    return true;
  }
  sockaddr_in6 v6{};
  if (!parts.isBracketed || !parseV6(parts.host, v6)) return false;
  result = SocketAddress(v6).withPort(parts.port);
  return true;
}

}  // namespace

SocketAddress::SocketAddress(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    std::memcpy(&storage_.v4, address, sizeof storage_.v4);
  } else if (address->sa_family == AF_INET6) {
    std::memcpy(&storage_.v6, address, sizeof storage_.v6);
  }
}

Result<SocketAddress> SocketAddress::parse(std::string_view text) {
  TUTTI_TRY_ASSIGN(const HostAndPort parts, splitHostAndPort(text));
  SocketAddress result;
  if (!parseNumeric(parts, result)) return badAddress(text, "not a numeric address");
  return result;
}

Result<SocketAddress> SocketAddress::resolve(std::string_view text, int family) {
  TUTTI_TRY_ASSIGN(const HostAndPort parts, splitHostAndPort(text));
  SocketAddress result;
  if (parseNumeric(parts, result)) {
    if (family != 0 && result.family() != family) {
      return badAddress(text, "not of the family that NCCL_SOCKET_FAMILY asks for");
    }
    return result;
  }
  if (parts.isBracketed) return badAddress(text, "not an IPv6 address of an existing interface");
  addrinfo hints{};
  hints.ai_family = family;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(parts.host.c_str(), nullptr, &hints, &found);
  if (error != 0) {
    return makeError(Code::kSystemError, fmt::format("cannot resolve host \"{}\": {}", parts.host,
                                                     gai_strerror(error)));
  }
  result = SocketAddress(found->ai_addr).withPort(parts.port);
  freeaddrinfo(found);
  return result;
}

uint16_t SocketAddress::port() const {
  if (family() == AF_INET) return ntohs(storage_.v4.sin_port);
  return family() == AF_INET6 ? ntohs(storage_.v6.sin6_port) : uint16_t{0};
}

uint32_t SocketAddress::scope() const {
  return family() == AF_INET6 ? storage_.v6.sin6_scope_id : 0;
}

SocketAddress SocketAddress::withPort(uint16_t port) const {
  SocketAddress result = *this;
  if (family() == AF_INET) result.storage_.v4.sin_port = htons(port);
  if (family() == AF_INET6) result.storage_.v6.sin6_port = htons(port);
  return result;
}

SocketAddress SocketAddress::withScope(uint32_t scope) const {
  SocketAddress result = *this;
  if (family() == AF_INET6) result.storage_.v6.sin6_scope_id = scope;
  return result;
}

bool SocketAddress::isLoopback() const {
  if (family() == AF_INET) return (ntohl(storage_.v4.sin_addr.s_addr) >> 24) == 127;
  return family() == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&storage_.v6.sin6_addr);
}

bool SocketAddress::isLinkLocal() const {
  if (family() == AF_INET) return (ntohl(storage_.v4.sin_addr.s_addr) >> 16) == 0xa9fe;
  return family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&storage_.v6.sin6_addr);
}

bool SocketAddress::isSameHost(const SocketAddress& other) const {
  return isInSubnet(other, family() == AF_INET ? 32 : 128);
}

bool SocketAddress::isInSubnet(const SocketAddress& other, int prefixBits) const {
  if (family() != other.family() || isEmpty()) return false;
  const EncodedAddress mine = encodeAddress(*this);
  const EncodedAddress theirs = encodeAddress(other);
  for (int bit = 0; bit < prefixBits; bit += 8) {
    const size_t at = 8 + static_cast<size_t>(bit) / 8;
    const int rest = prefixBits - bit;
    const unsigned mask = rest >= 8 ? 0xffu : (0xff00u >> rest) & 0xffu;
    if (((mine[at] ^ theirs[at]) & mask) != 0) return false;
  }
  return true;
}

std::string SocketAddress::hostText() const {
  if (isEmpty()) return "(none)";
  char text[INET6_ADDRSTRLEN] = "";
  const void* bytes = family() == AF_INET ? static_cast<const void*>(&storage_.v4.sin_addr)
                                          : static_cast<const void*>(&storage_.v6.sin6_addr);
  inet_ntop(family(), bytes, text, sizeof text);
  if (scope() == 0) return text;
  char name[IF_NAMESIZE] = "";
  if (if_indextoname(scope(), name) == nullptr) return fmt::format("{}%{}", text, scope());
  return fmt::format("{}%{}", text, name);
}

std::string SocketAddress::text() const {
  if (isEmpty()) return "(none)";
  if (family() == AF_INET6) return fmt::format("[{}]:{}", hostText(), port());
  return fmt::format("{}:{}", hostText(), port());
}

socklen_t SocketAddress::size() const {
  if (family() == AF_INET) return sizeof storage_.v4;
  return family() == AF_INET6 ? sizeof storage_.v6 : 0;
}

EncodedAddress encodeAddress(const SocketAddress& address) {
  EncodedAddress bytes{};
  if (address.isEmpty()) return bytes;
  const bool isV4 = address.family() == AF_INET;
  bytes[0] = isV4 ? kWireV4 : kWireV6;
  bytes[2] = static_cast<unsigned char>(address.port() & 0xff);
  bytes[3] = static_cast<unsigned char>(address.port() >> 8);
  if (isV4) {
    std::memcpy(&bytes[8], &reinterpret_cast<const sockaddr_in*>(address.data())->sin_addr, 4);
  } else {
    std::memcpy(&bytes[8], &reinterpret_cast<const sockaddr_in6*>(address.data())->sin6_addr, 16);
  }
  for (size_t i = 0; i < 4; ++i) {
    bytes[24 + i] = static_cast<unsigned char>((address.scope() >> (8 * i)) & 0xff);
  }
  return bytes;
}

Result<SocketAddress> decodeAddress(const EncodedAddress& bytes) {
  const auto port = static_cast<uint16_t>(bytes[2] | (bytes[3] << 8));
  if (bytes[1] == 0 && bytes[0] == kWireNone) return SocketAddress();
  if (bytes[1] == 0 && bytes[0] == kWireV4) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    std::memcpy(&v4.sin_addr, &bytes[8], 4);
    return SocketAddress(v4).withPort(port);
  }
  if (bytes[1] == 0 && bytes[0] == kWireV6) {
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    std::memcpy(&v6.sin6_addr, &bytes[8], 16);
    for (size_t i = 0; i < 4; ++i) v6.sin6_scope_id |= uint32_t{bytes[24 + i]} << (8 * i);
    return SocketAddress(v6).withPort(port);
  }
  return invalidArgument("an address of family {}, wanted 4 or 6", bytes[0] | (bytes[1] << 8));
}

}  // namespace tutti::bootstrap
