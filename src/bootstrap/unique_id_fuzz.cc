// libFuzzer entry: 128 bytes that a program hands in as an id, and offered addresses.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "bootstrap/socket_address.h"
#include "bootstrap/unique_id.h"

namespace tutti {
namespace {

void parse(std::span<const std::byte> bytes) {
  std::array<std::byte, bootstrap::kUniqueIdBytes> id{};
  std::memcpy(id.data(), bytes.data(), std::min(bytes.size(), id.size()));
  // Whatever is taken for an id is one that we could have written.
  const auto decoded = bootstrap::decode(id);
  if (decoded.ok()) {
    static_cast<void>(bootstrap::decodeAddress(decoded.value().address).ok());
    const auto again = bootstrap::encode(decoded.value());
    if (!bootstrap::decode(again).ok()) std::abort();
  }
  // The same bytes with a good checksum reach what lies behind it.
  bootstrap::UniqueId forged;
  std::memcpy(forged.address.data(), bytes.data(), std::min(bytes.size(), forged.address.size()));
  const auto back = bootstrap::decode(bootstrap::encode(forged));
  if (!back.ok() || back.value().address != forged.address) std::abort();
  const auto address = bootstrap::decodeAddress(forged.address);
  if (address.ok()) static_cast<void>(address.value().text());
}

}  // namespace
}  // namespace tutti

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 0) tutti::parse(std::as_bytes(std::span(data, size)));
  return 0;
}
