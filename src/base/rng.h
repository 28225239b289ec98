// Randomness through a seam: secrets come from the system, tests replay a seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tutti {

class Rng {
 public:
  virtual void fill(std::span<std::byte> bytes) = 0;  // any thread
  virtual ~Rng() = default;
};

// libsodium's generator, fit for secrets.
Rng& systemRng();

// `byteCount` bytes of it as hexadecimal digits.
std::string randomHex(Rng& rng, size_t byteCount);

// SplitMix64 (Steele, Lea, Flood 2014): the same bytes for the same seed; for tests, never for
// secrets. One thread.
class SeededRng final : public Rng {
 public:
  explicit SeededRng(uint64_t seed) : state_(seed) {}
  void fill(std::span<std::byte> bytes) override;
  uint64_t next();
  // Uniform in [0, bound).
  uint64_t below(uint64_t bound) { return next() % bound; }

 private:
  uint64_t state_;
};

}  // namespace tutti
