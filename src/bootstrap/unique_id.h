// The 128 bytes that let ranks find and trust each other. Whoever has them can join: treat them as
// a password.
#pragma once

#include <netinet/in.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/rng.h"
#include "base/status.h"

namespace tutti::bootstrap {

inline constexpr size_t kUniqueIdBytes = 128;
using Secret = std::array<unsigned char, 32>;
using JobId = std::array<unsigned char, 16>;

// The process whose root the ranks meet at, for messages only. Zeros: not known.
struct Maker {
  int32_t processId = 0;
  std::array<char, 20> hostName{};  // up to its first dot, and cut
};

// The decoded id. On the wire (little endian, offsets): 0 magic+version u32, 4 address
// sockaddr_in6-like 28, 32 job 16, 48 secret 32, 80 creation time u64 (seconds, for messages only),
// 88 maker's process i32, 92 its host 20, 112 checksum 16 (BLAKE2b of the rest). An id of a library
// before the maker was told has zeros there.
struct UniqueId {
  std::array<unsigned char, 28> address{};  // family, port, address, scope: see encodeAddress in
                                            // socket_address.h
  JobId job{};                              // public name of the job; logs may show it
  Secret secret{};                          // never logged
  uint64_t createdSeconds = 0;
  Maker maker{};
};

// This process, on that host. Pure but for its process number.
Maker makerOn(std::string_view hostName);
// "process 4711 on node7"; "" where it is not known.
std::string describe(const Maker& maker);

std::array<std::byte, kUniqueIdBytes> encode(const UniqueId& id);

// kInvalidArgument for all zeros ("was ncclGetUniqueId called on rank 0 and the result sent to
// all?"), a wrong version, or a checksum that does not match (truncated or garbled on the way).
Result<UniqueId> decode(const std::array<std::byte, kUniqueIdBytes>& bytes);

// First 8 hex digits of the job id, for messages.
std::string jobName(const JobId& job);

}  // namespace tutti::bootstrap
