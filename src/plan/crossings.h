// What of a collective goes between hosts, by its schedule: what the network's prices are for.
// Pure, any thread.
#pragma once

#include <cstdint>
#include <span>

#include "schedule/catalog.h"

namespace tutti::plan {

// Of one piece; a message carries a chunk. All 0: there is one host.
struct Crossings {
  int32_t hops = 0;          // on the path that meets most of them
  int32_t rankMessages = 0;  // sent or received by a rank of the host below, whichever is more
  int32_t rankLinks = 0;     // on which a rank of that host does, at most
  int32_t hostMessages = 0;  // sent or received by all ranks of that host, whichever is more
  int32_t hostPassages = 0;  // both
  int32_t hostFolds = 0;     // of those received: folded there
  int32_t hostRanks = 1;     // that it has
  int32_t hostCount = 1;
};

// `hostOf`: of each rank, by number; empty: one host. Messages are those of the busiest among the
// root's host, or, without a root, rank 0's, and the three after it; of a block's chunks only the
// first `filledChunks` are sent (schedule::chunksOf). Builds these hosts' programs: some us for 8
// ranks, so ask once.
Crossings crossingsOf(const schedule::Algorithm& algorithm,
                      const schedule::ScheduleOptions& options, std::span<const int32_t> hostOf,
                      int32_t filledChunks);

}  // namespace tutti::plan
