// How many ranks share a CPU: waiting, and the pieces that messages are cut into, go by it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/affinity.h"
#include "base/home_cpu.h"
#include "base/ids.h"

namespace tutti::comm {

struct RankCpus {
  uint64_t host = 0;     // bootstrap::PeerInfo::hostHash
  uint64_t machine = 0;  // comm::machineHash(); 0: a host's own
  int32_t usable = 0;    // CPUs' worth of time, by affinity and control groups
  CpuMask mask{};        // none of a rank that is bound to others alone
};

// The CPUs that the host's ranks may use together: ranks bound to a CPU each do not share one,
// though each may use just one. Where a control group limits a rank further, as many as that. At
// least 1.
int32_t cpusOfHost(std::span<const RankCpus> ranks, uint64_t host);

// The ranks of all hosts on a rank's machine, and the CPUs that they may use together, at least 1:
// containers, and hosts that are played, may share some. Waiting and helpers go by it.
struct MachineCpus {
  int32_t ranks = 0;
  int32_t cpus = 1;
  int32_t each() const { return cpus / ranks; }
};
MachineCpus machineOf(std::span<const RankCpus> ranks, const RankCpus& rank);

// Ranks a CPU on the host where it is most; at least 1. Every rank finds the same. Plans go by it.
double ranksPerCpu(std::span<const RankCpus> ranks);

// Whole CPUs a rank of the machine where it is least; 0: ranks share some. Every rank finds the
// same.
int32_t cpusEach(std::span<const RankCpus> ranks);

// Where a rank belongs on a host whose ranks share all CPUs: each CPU gets as many of them,
// neighbours stay together. HomeCpu::kNone where there are fewer ranks than CPUs, or where the
// ranks may not all use the same: who bound them has decided.
int32_t homeCpuOf(std::span<const RankCpus> ranks, Rank rank);

// By rank, whether it belongs on the same CPU as this one, or is of another host. Empty where ranks
// have no such places.
std::vector<uint8_t> sharersOfHome(std::span<const RankCpus> ranks, Rank rank);

}  // namespace tutti::comm
