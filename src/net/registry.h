// Opens the network providers of this build.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/rng.h"
#include "net/net.h"

namespace tutti::net {

struct NetworkOptions {
  std::string interfaces;                     // NCCL_SOCKET_IFNAME
  int family = 0;                             // AF_INET, AF_INET6, 0 any
  std::chrono::milliseconds timeout{10'000};  // a peer that acknowledges nothing for so long is
                                              // gone
  Clock* clock = &steadyClock();
  Rng* rng = &systemRng();
};

std::unique_ptr<Provider> openSockets(const NetworkOptions& options);

}  // namespace tutti::net
