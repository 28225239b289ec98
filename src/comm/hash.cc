#include "comm/hash.h"

#include <sodium.h>

#include <array>

namespace tutti::comm {

uint64_t hashOf(std::string_view bytes) {
  std::array<unsigned char, 16> digest{};
  crypto_generichash(digest.data(), digest.size(),
                     reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), nullptr,
                     0);
  uint64_t hash = 0;
  for (size_t i = 0; i < sizeof hash; ++i) hash = (hash << 8) | digest[i];
  return hash;
}

uint64_t hashOf(const bootstrap::JobId& job) {
  return hashOf({reinterpret_cast<const char*>(job.data()), job.size()});
}

}  // namespace tutti::comm
