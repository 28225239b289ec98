// What processes say of their listeners for links, and connections of themselves: a contact's
// bytes, a connection's number. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "bootstrap/socket_address.h"
#include "net/net.h"
#include "net/socket/socket_connection.h"

namespace tutti::net::socket {

inline constexpr size_t kMaxInterfaces = 8;

struct Listeners {
  uint32_t sockets = 1;  // of a link, at least
  uint32_t ciphers = 0;  // a bit for each that the process can open; 0: links are in the clear
  std::array<std::byte, 16> secret{};
  std::vector<bootstrap::SocketAddress> addresses;  // one an interface, kMaxInterfaces at most
};

Provider::Contact encodeContact(const Listeners& listeners);
// kRemoteError for what is none. The scope of a link-local address is the reader's own affair.
Result<Listeners> decodeContact(const Provider::Contact& contact);

uint32_t bitOf(Cipher cipher);
// Those that this machine can open.
uint32_t ownCiphers();

// A connection says in its number whose it is: the link's number, of which the lowest bits are left
// out, how many the link has, and which of them this is.
inline constexpr uint64_t kStreamBits = 6;
static_assert(kMaxStreams == 1 << kStreamBits);
inline constexpr uint64_t kLinkMask = ~((uint64_t{1} << 2 * kStreamBits) - 1);
constexpr uint64_t streamNumber(uint64_t link, size_t count, size_t which) {
  return (link & kLinkMask) | ((count - 1) << kStreamBits) | which;
}
constexpr size_t countIn(uint64_t number) {
  return ((number >> kStreamBits) & (kMaxStreams - 1)) + 1;
}
// May be no smaller than that count: it is the other side that says so.
constexpr size_t placeIn(uint64_t number) { return number & (kMaxStreams - 1); }

}  // namespace tutti::net::socket
