// Tests only: waits for a connection.
#pragma once

#include <chrono>
#include <memory>

#include "base/futex.h"
#include "net/net.h"

namespace tutti::net {

inline Result<std::unique_ptr<Connection>> connectNow(Provider& provider,
                                                      const Provider::Contact& contact,
                                                      const Caller& caller,
                                                      std::chrono::milliseconds timeout) {
  TUTTI_TRY_ASSIGN(auto pending, provider.connect(contact, caller, timeout));
  for (;;) {
    TUTTI_TRY_ASSIGN(auto connection, pending->poll());
    if (connection != nullptr) return connection;
    sleepFor(std::chrono::microseconds(50));
  }
}

}  // namespace tutti::net
