// Opens an authenticated connection to another process's listener.
#pragma once

#include "base/clock.h"
#include "base/fd.h"
#include "base/rng.h"
#include "base/status.h"
#include "bootstrap/handshake.h"
#include "bootstrap/socket_address.h"

namespace tutti::net::socket {

struct DialOptions {
  bootstrap::SocketAddress address;
  const bootstrap::Key* key = nullptr;  // outlives the call
  bootstrap::Introduction introduction;
  std::chrono::milliseconds timeout{0};
  Clock* clock = &steadyClock();
  Rng* rng = &systemRng();
};

struct Dialed {
  UniqueFd fd;
  bootstrap::SessionKeys keys;
};
// Tries again while nobody answers or a flooded listener turns us away, up to the timeout.
Result<Dialed> dial(const DialOptions& options);

}  // namespace tutti::net::socket
