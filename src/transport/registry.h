// Opens the transports of this build, in the order in which a pair of ranks tries them.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "base/rng.h"
#include "base/status.h"
#include "bootstrap/handoff.h"
#include "net/registry.h"
#include "transport/reducer.h"
#include "transport/transport.h"

namespace tutti::transport {

struct TransportOptions {
  bootstrap::Handoff* handoff = nullptr;      // hands segments to other processes; null: no shm.
                                              // Outlives the transports
  bool shmDisabled = false;                   // NCCL_SHM_DISABLE
  bootstrap::HandoffToken relayToken{};       // PeerInfo::relayToken of this process
  tutti::net::NetworkOptions network{};       // for links to other hosts
  std::chrono::milliseconds timeout{10'000};  // bounds connect()
  Rng* rng = &systemRng();                    // makes the offers' tokens
};

// Shared by sets that differ in their network only.
using Transports = std::vector<std::shared_ptr<Transport>>;

// One set a process: links inside the process connect only through one and the same set.
Transports openTransports(const TransportOptions& options);
// The same set but for links to other hosts. Of the options, those of the network's transport.
Transports withOtherNetwork(const Transports& transports, const TransportOptions& options);

// The first that can connect the pair; sender and receiver choose alike. Otherwise kInvalidUsage
// that says for each transport why it cannot.
Result<Transport*> pick(const Transports& transports, const bootstrap::PeerInfo& sender,
                        const bootstrap::PeerInfo& receiver);

// A member's links to and from its group of a network that reduces.
Result<ReducerLinks> openReducer(ReducerOptions options);

}  // namespace tutti::transport
