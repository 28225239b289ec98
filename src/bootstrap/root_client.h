// A rank's way to a root in another process: connect, prove the secret, report, wait for the
// answer. Blocks the calling thread, which looks at the abort flag all the while.
#pragma once

#include <atomic>
#include <string>

#include "base/clock.h"
#include "base/rng.h"
#include "base/status.h"
#include "bootstrap/key.h"
#include "bootstrap/messages.h"
#include "bootstrap/socket_address.h"

namespace tutti::bootstrap {

struct RootCall {
  SocketAddress address;
  const Key* key = nullptr;
  std::string job;              // its public name, for messages
  Report report;                // report.timeout: how long to try
  uint64_t createdSeconds = 0;  // when the id was made, by its maker's clock; 0: unknown
  bool isReusable = false;  // NCCL_COMM_ID: a closed door may belong to the previous job, so try
                            // again
  const std::atomic<bool>* abort = nullptr;   // may be null
  const std::atomic<bool>* giveUp = nullptr;  // may be null: the rank has failed at another root
  Clock* clock = &steadyClock();
  Rng* rng = &systemRng();
};

// kRemoteError when nobody listens, the root turns this rank away, goes, or keeps silent; otherwise
// what the root says.
Result<Answer> askRoot(const RootCall& call);

}  // namespace tutti::bootstrap
