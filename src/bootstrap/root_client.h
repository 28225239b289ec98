// A rank's way to a root in another process: connect, prove the secret, report, wait for the
// answer. Blocks the calling thread, which looks at the abort flag all the while.
#pragma once

#include <atomic>
#include <chrono>
#include <string>

#include "base/clock.h"
#include "base/rng.h"
#include "base/status.h"
#include "bootstrap/key.h"
#include "bootstrap/messages.h"
#include "bootstrap/socket_address.h"
#include "bootstrap/unique_id.h"

namespace tutti::bootstrap {

struct RootCall {
  SocketAddress address;
  const Key* key = nullptr;
  std::string job;                       // its public name, for messages
  Report report;                         // report.timeout: how long to wait for the others
  std::chrono::milliseconds timeout{0};  // to reach the root; with isReusable report.timeout is
  uint64_t createdSeconds = 0;           // when the id was made, by its maker's clock; 0: unknown
  Maker maker = {};                      // whose root it is
  bool isReusable = false;  // NCCL_COMM_ID: a closed door may belong to the previous job, so try
                            // again
  const std::atomic<bool>* abort = nullptr;  // may be null
  // May be null. Not null in it: the rank has failed at another root, and gives up here.
  const std::atomic<const Status*>* failure = nullptr;
  Clock* clock = &steadyClock();
  Rng* rng = &systemRng();
};

// How long a rank waits before it connects to its root, so that a large job does not come all at
// once: a root's queue holds 4096 connections where the system has not been told otherwise, 128 on
// old ones, and one that finds it full comes a quarter of a second later at the earliest
// (Approach). Up to 256 ranks of a root none; of more, 7000 a second, as NCCL does. Pure.
std::chrono::microseconds staggerOf(Rank rank, int32_t rankCount);

// kRemoteError when nobody listens, the root turns this rank away, goes, or keeps silent; otherwise
// what the root says.
Result<Answer> askRoot(const RootCall& call);

}  // namespace tutti::bootstrap
