// Bus bandwidth as nccl-tests counts it, for everything that prints it: measured or simulated.
#pragma once

#include <cstdint>

#include "wire/types.h"

namespace tutti {

// Bytes over the busiest link for each byte of the whole vector. Of one rank 0 or 1: it moves
// nothing.
constexpr double busFactor(Collective collective, int32_t rankCount) {
  const double ranks = rankCount;
  switch (collective) {
    case Collective::kAllReduce: return 2 * (ranks - 1) / ranks;
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
    case Collective::kGather:
    case Collective::kScatter: return (ranks - 1) / ranks;
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kSend:
    case Collective::kRecv: return 1;
  }
  return 1;
}

}  // namespace tutti
