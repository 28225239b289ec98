#include "net/socket/contact.h"

#include <algorithm>
#include <cstring>

namespace tutti::net::socket {
namespace {

// Of one interface.
struct Place {
  uint16_t family = 0;  // 4 or 6; 0: none
  uint16_t port = 0;
  std::array<unsigned char, 16> address{};
};
struct Layout {
  uint32_t sockets = 1;
  uint32_t ciphers = 0;
  std::array<std::byte, 16> secret{};
  std::array<Place, kMaxInterfaces> places{};
  std::array<std::byte, 8> zeros{};
};
static_assert(sizeof(Layout) == sizeof(Provider::Contact));

Place encode(const bootstrap::SocketAddress& address) {
  const bootstrap::EncodedAddress encoded = bootstrap::encodeAddress(address);
  Place place;
  std::memcpy(&place.family, encoded.data(), sizeof place.family);
  std::memcpy(&place.port, encoded.data() + 2, sizeof place.port);
  std::memcpy(place.address.data(), encoded.data() + 8, place.address.size());
  return place;
}

Result<bootstrap::SocketAddress> decode(const Place& place) {
  bootstrap::EncodedAddress encoded{};
  std::memcpy(encoded.data(), &place.family, sizeof place.family);
  std::memcpy(encoded.data() + 2, &place.port, sizeof place.port);
  std::memcpy(encoded.data() + 8, place.address.data(), place.address.size());
  TUTTI_TRY_ASSIGN(bootstrap::SocketAddress address, bootstrap::decodeAddress(encoded));
  if (address.port() == 0) return remoteError("a link offer names no port to connect to");
  return address;
}

}  // namespace

uint32_t bitOf(Cipher cipher) { return 1u << static_cast<uint32_t>(cipher); }

uint32_t ownCiphers() {
  const uint32_t everywhere = bitOf(Cipher::kChaCha20Poly1305);
  return hasAes() ? everywhere | bitOf(Cipher::kAes256Gcm) : everywhere;
}

Provider::Contact encodeContact(const Listeners& listeners) {
  Layout layout{
      .sockets = listeners.sockets, .ciphers = listeners.ciphers, .secret = listeners.secret};
  const size_t count = std::min(listeners.addresses.size(), layout.places.size());
  for (size_t i = 0; i < count; ++i) layout.places[i] = encode(listeners.addresses[i]);
  Provider::Contact contact;
  std::memcpy(contact.data(), &layout, sizeof layout);
  return contact;
}

Result<Listeners> decodeContact(const Provider::Contact& contact) {
  constexpr auto kAllCiphers =
      static_cast<uint32_t>(1u << static_cast<uint32_t>(Cipher::kChaCha20Poly1305) |
                            1u << static_cast<uint32_t>(Cipher::kAes256Gcm));
  Layout layout;
  std::memcpy(&layout, contact.data(), sizeof layout);
  const auto isZero = [](std::byte byte) { return byte == std::byte{0}; };
  const bool isSound = layout.ciphers <= kAllCiphers && layout.sockets >= 1 &&
                       layout.sockets <= kMaxStreams && std::ranges::all_of(layout.zeros, isZero);
  if (!isSound) return remoteError("a link offer is garbled: {} sockets", layout.sockets);
  Listeners listeners{.sockets = layout.sockets,
                      .ciphers = layout.ciphers,
                      .secret = layout.secret,
                      .addresses = {}};
  for (const Place& place : layout.places) {
    if (place.family == 0) break;
    TUTTI_TRY_ASSIGN(const bootstrap::SocketAddress address, decode(place));
    listeners.addresses.push_back(address);
  }
  if (listeners.addresses.empty())
    return remoteError("a link offer names no address to connect to");
  return listeners;
}

}  // namespace tutti::net::socket
