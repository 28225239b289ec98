#include "base/rng.h"

#include <fmt/core.h>
#include <sodium.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace tutti {
namespace {

class SystemRng final : public Rng {
 public:
  SystemRng() {
    // Without the system's generator no secret can be made; libsodium itself ends the process in
    // that case.
    [[maybe_unused]] int status = sodium_init();
  }
  void fill(std::span<std::byte> bytes) override { randombytes_buf(bytes.data(), bytes.size()); }
};

}  // namespace

Rng& systemRng() {
  // Never destroyed: service threads use it while the process ends.
  static SystemRng& rng = *new SystemRng;
  return rng;
}

std::string randomHex(Rng& rng, size_t byteCount) {
  std::vector<std::byte> bytes(byteCount);
  rng.fill(bytes);
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", std::to_integer<int>(byte));
  return text;
}

uint64_t SeededRng::next() {
  uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

void SeededRng::fill(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const uint64_t value = next();
    const size_t part = std::min(bytes.size(), sizeof value);
    std::memcpy(bytes.data(), &value, part);
    bytes = bytes.subspan(part);
  }
}

}  // namespace tutti
