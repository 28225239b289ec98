// Opens the network providers of this build.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/rng.h"
#include "device/shared_memory.h"
#include "net/fabrics.h"
#include "net/net.h"
#include "net/network_wish.h"
#include "net/reduction.h"
#include "net/verbs_options.h"

namespace tutti::net {

struct NetworkOptions {
  std::string interfaces{};            // NCCL_SOCKET_IFNAME
  int family = 0;                      // AF_INET, AF_INET6, 0 any
  int64_t socketThreads = -1;          // NCCL_SOCKET_NTHREADS; -1: by the links' speed
  int64_t socketsPerThread = -1;       // NCCL_NSOCKS_PERTHREAD; -1: by the links' speed
  bool isEncrypted = false;            // TUTTI_SECURE=encrypt: by sockets, and only these
  bool isChecked = false;              // TUTTI_NET_CHECKSUM, of sockets
  std::string network{};               // NCCL_NET; empty: whatever there is, or sockets
  std::string namedBy = "NCCL_NET";    // who names it, for messages
  int trafficClass = kNoTrafficClass;  // of links' packets
  std::string plugins = "none";        // NCCL_NET_PLUGIN; empty: libnccl-net.so, if any
  std::string ofiProvider{};           // TUTTI_OFI_PROVIDER
  std::string ofiLibrary = "libfabric.so.1";
  std::string root = "/";                     // where adapters are looked for that it is for
  VerbsOptions verbs{};                       // NCCL_IB_*
  std::shared_ptr<Fabrics> fabrics{};         // of the process, shared with calls that open them;
                                              // null: each network opens its own
  device::SharedMemory* segments = nullptr;   // where adapters send from and receive into, too;
                                              // outlives the network
  std::chrono::milliseconds timeout{10'000};  // a peer that acknowledges nothing for so long is
                                              // gone
  Clock* clock = &steadyClock();
  Rng* rng = &systemRng();
};

NetworkOptions networkOptionsOf(const Settings& settings);
// The same with what a communicator's config asks for.
NetworkOptions withWish(NetworkOptions options, const NetworkWish& wish);

// What openNetwork() would take here, opened once to see, and why not what goes before it. A
// library that does not return within the time-out is left behind, as there.
struct NetworkChoice {
  std::string name{};    // "IB", "socket"
  std::string reason{};  // its adapters, or what is in the way of others
};
Result<NetworkChoice> chooseNetwork(const NetworkOptions& options);

// The network that the options ask for, found and opened at its first use; where it cannot be had
// and nothing but it was asked for, errors say why, otherwise sockets take its place.
std::unique_ptr<Provider> openNetwork(const NetworkOptions& options);

// The first network that reduces among NCCL_NET_PLUGIN's entries. An error, not logged, says of
// each why it is none.
Result<std::unique_ptr<ReductionNetwork>> openReduction(const NetworkOptions& options);

}  // namespace tutti::net
