// libfabric's networks (NCCL_NET=ofi) as a fabric: TCP, and the adapters of machines and clouds
// that have a provider there. Loaded when asked for, so the library runs where there is none.
#pragma once

#include <memory>
#include <string>

#include "base/rng.h"
#include "base/status.h"
#include "net/fabric.h"

namespace tutti::net::ofi {

struct Options {
  std::string provider{};    // TUTTI_OFI_PROVIDER; empty: libfabric's first choice
  std::string interfaces{};  // NCCL_SOCKET_IFNAME, for providers with internet addresses
  int family = 0;            // likewise
  bool isAdapter = false;    // the provider is to be of adapters: no other one below or above it,
                             // no internet addresses
  std::string library = "libfabric.so.1";  // what is opened
  Rng& rng;                                // outlives the fabric
};

// kSystemError, not logged: there is no libfabric, or it has no such provider.
Result<std::unique_ptr<Fabric>> open(const Options& options);

}  // namespace tutti::net::ofi
