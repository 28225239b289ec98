// Keys of the bootstrap: derived from the id's secret, compared in constant time, wiped when they
// go.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "bootstrap/unique_id.h"

namespace tutti::bootstrap {

// 32 bytes that are zeroed on destruction. Copies are wiped likewise.
class Key {
 public:
  Key() = default;
  Key(const Key&) = default;
  Key& operator=(const Key&) = default;
  ~Key();

  std::span<unsigned char, 32> bytes() { return bytes_; }
  std::span<const unsigned char, 32> bytes() const { return bytes_; }

 private:
  std::array<unsigned char, 32> bytes_{};
};

// BLAKE2b (RFC 7693) under `key`, of the label and all parts one after the other. Fills `out`, 16
// to 64 bytes. The parts must have lengths that the label fixes: nothing marks where one ends.
void keyedHash(const Key& key, std::string_view label,
               std::initializer_list<std::span<const std::byte>> parts, std::span<std::byte> out);

bool equalInConstantTime(std::span<const std::byte> a, std::span<const std::byte> b);

// The key all connections of a job start from: the id's secret, the job's name and, when there is
// one, the secret file.
Key deriveJobKey(const UniqueId& id, std::string_view fileSecret);

// The content of TUTTI_SECRET_FILE; "" for an empty path. kInvalidUsage unless it is a regular file
// of this user that nobody else can read or write, with 16 to 4096 bytes.
Result<std::string> readSecretFile(const std::string& path);

}  // namespace tutti::bootstrap
