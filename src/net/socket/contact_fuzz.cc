// libFuzzer entry: where another process says that it listens for links. Build with clang
// -fsanitize=fuzzer,address.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "net/socket/contact.h"

namespace tutti::net::socket {
namespace {

void parse(std::span<const std::byte> bytes) {
  Provider::Contact contact{};
  std::memcpy(contact.data(), bytes.data(), std::min(bytes.size(), contact.size()));
  Result<Listeners> decoded = decodeContact(contact);
  if (decoded.ok()) {
    const Listeners& listeners = *decoded;
    if (listeners.sockets < 1 || listeners.sockets > kMaxStreams || listeners.addresses.empty() ||
        listeners.addresses.size() > kMaxInterfaces)
      std::abort();
    for (const bootstrap::SocketAddress& each : listeners.addresses) {
      if (each.port() == 0 || each.scope() != 0 || each.text().empty()) std::abort();
    }
    // What is taken for a contact is one that we could have written.
    const Provider::Contact own = encodeContact(listeners);
    Result<Listeners> again = decodeContact(own);
    if (!again.ok() || encodeContact(*again) != own) std::abort();
  }
  // A connection's number, which may name a place that its link does not have.
  uint64_t number = 0;
  std::memcpy(&number, bytes.data(), std::min(bytes.size(), sizeof number));
  if (countIn(number) > kMaxStreams || placeIn(number) >= kMaxStreams ||
      streamNumber(number, countIn(number), placeIn(number)) != number)
    std::abort();
}

}  // namespace
}  // namespace tutti::net::socket

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 0) tutti::net::socket::parse(std::as_bytes(std::span(data, size)));
  return 0;
}
