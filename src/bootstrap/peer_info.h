// What every rank tells every other at start. Plain data, copied over the wire as it stands between
// equal builds.
#pragma once

#include <fmt/core.h>

#include <array>
#include <cstdint>
#include <string>

#include "base/char_field.h"
#include "base/ids.h"

namespace tutti::bootstrap {

struct PeerInfo {
  int32_t rank = 0;
  int32_t processId = 0;
  uint64_t hostHash = 0;     // hostname + boot id, or NCCL_HOSTID: equal on one host
  uint64_t processHash = 0;  // random per process: equal means same process, also where pid
                             // namespaces repeat pids
  uint32_t libraryVersion = 0;
  int32_t deviceIndex = -1;   // CUDA device, -1 for a CPU rank
  uint64_t settingsHash = 0;  // of the settings that must agree on all ranks
  uint32_t userId = 0;
  int32_t usableCpus = 0;
  uint64_t rail = 0;  // of the settings that name its adapters: equal where they name the same
  // Which life of that process number is meant, and in which namespace it counts; 0: not known.
  uint64_t processStart = 0;
  uint64_t pidNamespace = 0;
  std::array<std::byte, 16> relayToken{};  // whose holder may have the process carry its links;
                                           // zeros: it carries none
  std::array<char, 64> hostName{};         // zero-terminated, truncated
  std::array<char, 64> handoffName{};  // Unix socket of the process that hands over memory; empty
                                       // when it has none
};
static_assert(sizeof(PeerInfo) == 88 + 128);

// "rank 3 (node-7, pid 4711)"
inline std::string describe(const PeerInfo& peer) {
  return fmt::format("rank {} ({}, pid {})", peer.rank, textOf(peer.hostName), peer.processId);
}
// Of a rank whose process carries a link of others'.
inline std::string describeCarrier(const PeerInfo& carrier, int32_t sender, int32_t receiver) {
  return fmt::format("{}, whose process carries what rank {} sends to rank {} (NCCL_P2P_PXN_LEVEL)",
                     describe(carrier), sender, receiver);
}

}  // namespace tutti::bootstrap
