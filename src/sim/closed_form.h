// A call's time in closed form: what it costs by itself, the messages that wait for each other, and
// the busiest of lanes and links for its bytes. Calls are measured one after the other without a
// pause, so what a call costs by itself passes while links still carry the last one's bytes. Linear
// in ranks x channels. Pure.
#pragma once

#include <compare>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "sim/edges.h"
#include "sim/hops.h"
#include "sim/time_constants.h"
#include "sim/traffic.h"

namespace tutti::sim {

struct Timing {
  System system = System::kTutti;
  Launch launch = Launch::kGraph;
  // NCCL's prices are by range of sizes, as what was measured of it does not tell its protocols
  // apart: a call takes the least of them. Of a way that NCCL does not take: those in whose range
  // its protocol is, which then cost more.
  bool byProtocol = false;
};

struct Estimate {
  double us = 0;
  double fixedUs = 0;    // the call itself, launch included
  double latencyUs = 0;  // of the longest chain of messages
  double bytesUs = 0;    // of the busiest lanes or link
  int64_t hops = 0;      // of that chain
  int64_t networkHops = 0;
  uint64_t messages = 0;  // of all ranks
  int32_t busiestLink = -1;
  double busiestLinkUs = 0;
  bool isLinkBound = false;  // otherwise the ranks' own speed limits
  CallPrices prices{};       // that were taken
};

// What of a call's load decides its time.
struct LoadFacts {
  double mostBytesSent = 0;  // by one rank, data
  double mostHopUs = 0;      // of the network's own latencies
  uint64_t messages = 0;     // 0: not counted
  BusiestLink busiest{};
  Hops hops{};
  double slowest = 1;  // share of its speed at which the slowest rank works
  int32_t ranksPerNode = 2;
  double chainedBytes = 0;  // of a chunk that passes, message after message, through rank after
                            // rank
  double sentCopies = 1;    // of the vector, by the rank that sends most
};
Estimate combine(const Cluster& cluster, const SimCall& call, const Method& method,
                 const Timing& timing, const LoadFacts& facts);

// Exact loads, flow by flow.
Result<Estimate> estimate(const Traffic& traffic, const Timing& timing);

// How a call's bytes lie on the links: as flows alike, so many at once over each link. All go at
// one rate, as they wait for each other.
struct LinkUse {
  struct Crossing {
    int32_t link = 0;  // of the cluster
    double flows = 0;
  };
  double flowBytes = 0;  // of one flow for each byte of the vector, without the protocol's flags
  std::vector<Crossing> crossings;
};

// The same for many sizes and protocols: loads are found once an algorithm, at a size where
// rounding is nothing, and scaled. Algorithms that talk all to all are summed up pair by pair;
// beyond two million pairs by a sample of distances that loads all ranks alike. One thread at a
// time.
class Estimator {
 public:
  // Borrows both.
  Estimator(const Cluster& cluster, const VirtualPlan& plan) : cluster_(cluster), plan_(plan) {}
  Result<Estimate> estimate(const SimCall& call, const Method& method, const Timing& timing);
  // Found anew each time.
  Result<LinkUse> linkUseOf(const SimCall& call, const Method& method) const;
  const Cluster& cluster() const { return cluster_; }
  const VirtualPlan& plan() const { return plan_; }

 private:
  struct Key {
    Collective collective;
    std::string algorithm;
    int32_t channelCount;
    Rank root;
    Rank sender;
    auto operator<=>(const Key&) const = default;
  };
  Result<Traffic> referenceTraffic(const SimCall& call, const Method& method) const;
  Result<LinkLoads> referenceLoads(const Traffic& traffic, const Method& method) const;
  Result<LoadFacts> factsOf(const SimCall& call, const Method& method);

  const Cluster& cluster_;
  const VirtualPlan& plan_;
  std::map<Key, LoadFacts> facts_;  // of kReferenceBytes
};

// What nccl-tests call bus bandwidth, GB/s.
double busGbPerSecond(Collective collective, int32_t rankCount, uint64_t bytes, double us);

}  // namespace tutti::sim
