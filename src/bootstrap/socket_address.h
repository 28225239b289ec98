// An IPv4 or IPv6 address with its port: parsed, printed, and carried over the wire. A plain value.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tutti::bootstrap {

class SocketAddress {
 public:
  SocketAddress() = default;  // empty: family() is AF_UNSPEC
  // `address` must be AF_INET or AF_INET6; anything else makes an empty address.
  explicit SocketAddress(const sockaddr* address);
  explicit SocketAddress(const sockaddr_in& address) { storage_.v4 = address; }
  explicit SocketAddress(const sockaddr_in6& address) { storage_.v6 = address; }

  // "10.0.0.5:4242", "[fe80::1%eth0]:4242": numbers only, no look-up. kInvalidArgument names what
  // is wrong.
  static Result<SocketAddress> parse(std::string_view text);
  // As parse(), and "host:port", resolved through the system. May block as long as the system's
  // resolver does. family: AF_INET, AF_INET6 or 0 for any.
  static Result<SocketAddress> resolve(std::string_view text, int family);

  bool isEmpty() const { return family() == AF_UNSPEC; }
  int family() const { return storage_.generic.sa_family; }
  uint16_t port() const;
  uint32_t scope() const;  // interface index of a link-local IPv6 address, else 0
  SocketAddress withPort(uint16_t port) const;
  SocketAddress withScope(uint32_t scope) const;

  bool isLoopback() const;
  bool isLinkLocal() const;
  bool isSameHost(const SocketAddress& other) const;  // address and family, not the port
  // True when the first prefixBits of both addresses are equal (and their families).
  bool isInSubnet(const SocketAddress& other, int prefixBits) const;

  std::string text() const;      // "10.0.0.5:4242", "[fe80::1%eth0]:4242", "(none)"
  std::string hostText() const;  // without port and brackets

  const sockaddr* data() const { return &storage_.generic; }
  socklen_t size() const;

 private:
  union {
    sockaddr generic;
    sockaddr_in v4;
    sockaddr_in6 v6;
  } storage_{.v6 = {}};
};

inline constexpr size_t kEncodedAddressBytes = 28;
using EncodedAddress = std::array<unsigned char, kEncodedAddressBytes>;

// Little endian, offsets: 0 family u16 (4, 6, or 0 for none), 2 port u16, 4 zero u32, 8 address 16
// (IPv4: first four bytes), 24 scope u32. The scope is an interface index of the host that made it:
// see withScope().
EncodedAddress encodeAddress(const SocketAddress& address);
// kInvalidArgument for an unknown family; any other bytes are some address.
Result<SocketAddress> decodeAddress(const EncodedAddress& bytes);

}  // namespace tutti::bootstrap
