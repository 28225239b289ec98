// The 128 bytes that let ranks find and trust each other. Whoever has them can join: treat them as
// a password.
#pragma once

#include <netinet/in.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/rng.h"
#include "base/status.h"

namespace tutti::bootstrap {

inline constexpr size_t kUniqueIdBytes = 128;
using Secret = std::array<unsigned char, 32>;
using JobId = std::array<unsigned char, 16>;

// The decoded id. On the wire (little endian, offsets): 0 magic+version u32, 4 address
// sockaddr_in6-like 28, 32 job 16, 48 secret 32, 80 creation time u64 (seconds, for messages only),
// 88 zero 24, 112 checksum 16 (BLAKE2b of the rest).
struct UniqueId {
  std::array<unsigned char, 28> address{};  // family, port, address, scope: see encodeAddress in
                                            // socket_address.h
  JobId job{};                              // public name of the job; logs may show it
  Secret secret{};                          // never logged
  uint64_t createdSeconds = 0;
};

std::array<std::byte, kUniqueIdBytes> encode(const UniqueId& id);

// kInvalidArgument for all zeros ("was ncclGetUniqueId called on rank 0 and the result sent to
// all?"), a wrong version, or a checksum that does not match (truncated or garbled on the way).
Result<UniqueId> decode(const std::array<std::byte, kUniqueIdBytes>& bytes);

// First 8 hex digits of the job id, for messages.
std::string jobName(const JobId& job);

}  // namespace tutti::bootstrap
