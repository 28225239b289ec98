// Tests only: waits for a sending end.
#pragma once

#include <chrono>
#include <memory>

#include "base/futex.h"
#include "transport/transport.h"

namespace tutti::transport {

inline Result<std::unique_ptr<LinkEnd>> awaitEnd(Result<std::unique_ptr<PendingEnd>> pending) {
  if (!pending.ok()) return pending.takeStatus();
  for (;;) {
    TUTTI_TRY_ASSIGN(auto end, (*pending)->poll());
    if (end != nullptr) return end;
    sleepFor(std::chrono::microseconds(50));
  }
}

}  // namespace tutti::transport
