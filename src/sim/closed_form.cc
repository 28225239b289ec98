#include "sim/closed_form.h"

#include <algorithm>

#include "schedule/catalog.h"
#include "wire/bus_factor.h"

namespace tutti::sim {
namespace {

constexpr double kBytesPerUs = 1e3;  // at 1 GB/s

// From a leaf of the linked tree up to its root: the deepest.
Hops depthOf(const Traffic& traffic, int32_t tree) {
  const graph::MergedGraph& merged = traffic.plan().merged;
  const Cluster& cluster = traffic.cluster();
  Hops deepest;
  for (int32_t rank = 0; rank < traffic.rankCount(); ++rank) {
    // Only leaves: others are on a leaf's way.
    if (merged.treeLinks(0, tree, Rank{rank}).down[0] != schedule::kNobody) continue;
    Hops here;
    Rank at{rank};
    for (Rank up = merged.treeLinks(0, tree, at).up; up != schedule::kNobody;
         up = merged.treeLinks(0, tree, at).up) {
      (cluster.nodeOf(at) == cluster.nodeOf(up) ? here.inside : here.between) += 1;
      at = up;
    }
    // A hop between nodes costs several inside one.
    constexpr int64_t kWeight = 4;
    if (here.inside + kWeight * here.between > deepest.inside + kWeight * deepest.between)
      deepest = here;
  }
  return deepest;
}

// How many of a ring's edges leave their node.
int64_t crossingsOf(const Traffic& traffic) {
  const auto order = traffic.order(0);
  const int32_t ranks = traffic.rankCount();
  int64_t crossings = 0;
  for (int32_t i = 0; i < ranks; ++i) {
    const auto at = [&](int32_t place) {
      return order.empty() ? Rank{place % ranks} : order[static_cast<size_t>(place % ranks)];
    };
    crossings += traffic.cluster().nodeOf(at(i)) != traffic.cluster().nodeOf(at(i + 1)) ? 1 : 0;
  }
  return crossings;
}

double slowestRank(const Traffic& traffic) {
  double slowest = 1;
  for (int32_t rank = 0; rank < traffic.rankCount(); ++rank)
    slowest = std::min(slowest, traffic.cluster().speedOf(Rank{rank}));
  return slowest;
}

}  // namespace

Hops hopsOf(const Traffic& traffic) {
  if (traffic.followsTrees() && traffic.rankCount() > 1) {
    const Hops up = depthOf(traffic, 0);
    return {2 * up.inside, 2 * up.between};
  }
  const schedule::Algorithm& algorithm =
      *schedule::findAlgorithm(traffic.call().collective, traffic.method().algorithm);
  const int32_t ranks = traffic.rankCount(), hosts = traffic.plan().evenHostCount;
  const int64_t hops = schedule::costOf(algorithm, schedule::evenSpread(ranks, hosts)).hops;
  if (traffic.cluster().nodeCount() == 1) return {hops, 0};
  if (algorithm.name != "ring") {
    const int64_t between = hosts > 1 ? algorithm.hostHops(ranks, hosts) : hops;
    return {hops - between, between};
  }
  const int64_t between = hops * crossingsOf(traffic) / traffic.rankCount();
  return {hops - between, between};
}

namespace {

Estimate combineAt(const Cluster& cluster, const CallPrices& prices, const LaunchCost& launch,
                   graph::Protocol protocol, const LoadFacts& facts) {
  Estimate made{.fixedUs = prices.fixedUs + launch.moreUs,
                .hops = facts.hops.inside + facts.hops.between,
                .networkHops = facts.hops.between,
                .messages = facts.messages,
                .prices = prices};
  made.latencyUs = static_cast<double>(facts.hops.inside) * prices.hopUs / facts.slowest +
                   static_cast<double>(facts.hops.between) *
                       (networkHopUs(cluster.hasGpus(), protocol) + facts.mostHopUs);
  const double lanesUs = prices.bytesUs(facts.mostBytesSent) / facts.slowest;
  // Whoever plays the call event by event needs one rate.
  if (lanesUs > 0)
    made.prices.gbPerSecond = facts.mostBytesSent / (lanesUs * facts.slowest * kBytesPerUs);
  made.busiestLink = facts.busiest.link;
  made.busiestLinkUs = facts.busiest.us;
  made.isLinkBound = facts.busiest.us > lanesUs;
  made.bytesUs = std::max(facts.busiest.us, lanesUs);
  made.us =
      std::max(made.latencyUs + std::max(made.fixedUs + lanesUs, facts.busiest.us), launch.leastUs);
  return made;
}

}  // namespace

Estimate combine(const Cluster& cluster, const SimCall& call, const Method& method,
                 const Timing& timing, const LoadFacts& facts) {
  if (!cluster.hasGpus())
    return combineAt(cluster, cpuPrices(call.collective, method.algorithm), {}, method.protocol,
                     facts);
  const LaunchCost launch =
      launchCost(timing.system, timing.launch, call.collective, cluster.rankCount());
  const auto at = [&](graph::Protocol protocol) {
    return combineAt(
        cluster,
        pricesFor({timing.system, call.collective, method.algorithm, protocol, facts.ranksPerNode}),
        launch, method.protocol, facts);
  };
  if (timing.system == System::kTutti || timing.byProtocol) return at(method.protocol);
  Estimate best = at(graph::Protocol::kLl);
  for (const graph::Protocol protocol : {graph::Protocol::kLl128, graph::Protocol::kSimple}) {
    Estimate other = at(protocol);
    if (other.us < best.us) best = other;
  }
  return best;
}

Result<Estimate> estimate(const Traffic& traffic, const Timing& timing) {
  TUTTI_TRY_ASSIGN(const LinkLoads loads, loadsOf(traffic));
  return combine(traffic.cluster(), traffic.call(), traffic.method(), timing,
                 {.mostBytesSent = static_cast<double>(loads.mostBytesSent),
                  .mostHopUs = loads.mostHopUs,
                  .messages = loads.messages,
                  .busiest = busiestOf(traffic.cluster(), loads),
                  .hops = hopsOf(traffic),
                  .slowest = slowestRank(traffic),
                  .ranksPerNode = traffic.cluster().mostRanksPerNode()});
}

namespace {

constexpr uint64_t kReferenceBytes = uint64_t{1} << 36;
constexpr int64_t kMostPairs = 2'000'000;

// Bytes that each rank sends to each other one, of the vector's; 0: not all to all.
double pairShare(Collective collective, std::string_view algorithm, int32_t rankCount) {
  const double n = rankCount;
  if (collective == Collective::kAllToAll) return 1 / n;
  if (algorithm == "oneshot") return 1;
  if (algorithm == "twoshot" && collective == Collective::kAllReduce) return 2 / n;
  const bool isBlocks =
      collective == Collective::kAllGather || collective == Collective::kReduceScatter;
  return isBlocks && algorithm == "direct" ? 1 / n : 0;
}

// All pairs, each with as many flows as there are channels; of too many, fewer flows, then only
// pairs whose distance is a multiple of an odd number: each rank then sends and receives alike, and
// meets all places in a node.
Result<LinkLoads> loadsOfPairs(const Cluster& cluster, double share, int32_t channels) {
  const int64_t ranks = cluster.rankCount();
  const int64_t pairs = ranks * ranks;
  const int64_t stride = pairs <= kMostPairs ? 1 : pairs / kMostPairs | 1;
  const int64_t peers = (ranks - 1) / stride;
  const int64_t flows = std::clamp<int64_t>(kMostPairs / pairs, 1, channels);
  LinkLoads loads;
  loads.wireBytes.resize(static_cast<size_t>(cluster.linkCount()));
  const double sent = share * static_cast<double>(kReferenceBytes) * static_cast<double>(ranks - 1);
  const double each = sent / static_cast<double>(std::max<int64_t>(peers * flows, 1));
  for (int64_t i = 0; i < ranks * peers * flows; ++i) {
    const int64_t from = i / (peers * flows), peer = 1 + i / flows % peers;
    TUTTI_TRY_ASSIGN(
        const FlowRoute route,
        cluster.route({.from = Rank{static_cast<int32_t>(from)},
                       .to = Rank{static_cast<int32_t>((from + peer * stride) % ranks)},
                       .flow = static_cast<uint64_t>(i % flows)}));
    for (const int32_t link : route.links) loads.wireBytes[static_cast<size_t>(link)] += each;
    loads.mostHopUs = std::max(
        loads.mostHopUs,
        route.switchCount * cluster.network().description().switchLatencyUs + route.portLatencyUs);
  }
  loads.mostBytesSent = static_cast<uint64_t>(sent);
  loads.longestFlow = each;
  return loads;
}

}  // namespace

namespace {

// Channels of some algorithms load the links alike, and each costs programs of as many steps as
// ranks.
int32_t referenceChannels(const Method& method) {
  const bool isLong =
      method.algorithm == "pat" || method.algorithm == "twoshot" || method.algorithm == "doubling";
  return isLong ? 1 : method.channelCount;
}

}  // namespace

Result<Traffic> Estimator::referenceTraffic(const SimCall& call, const Method& method) const {
  SimCall reference = call;
  reference.bytes = kReferenceBytes;
  Method simple = method;
  simple.protocol = graph::Protocol::kSimple;
  simple.channelCount = referenceChannels(method);
  simple.pieceBytes = kReferenceBytes;  // nobody counts messages here
  return Traffic::make(cluster_, plan_, reference, simple);
}

Result<LinkLoads> Estimator::referenceLoads(const Traffic& traffic, const Method& method) const {
  const double share = pairShare(traffic.call().collective, method.algorithm, cluster_.rankCount());
  return share > 0 ? loadsOfPairs(cluster_, share, method.channelCount) : loadsOf(traffic);
}

Result<LoadFacts> Estimator::factsOf(const SimCall& call, const Method& method) {
  const Key key{call.collective, method.algorithm, referenceChannels(method), call.root,
                call.sender};
  const auto found = facts_.find(key);
  if (found != facts_.end()) return found->second;
  TUTTI_TRY_ASSIGN(const Traffic traffic, referenceTraffic(call, method));
  TUTTI_TRY_ASSIGN(const LinkLoads loads, referenceLoads(traffic, method));
  LoadFacts facts{.mostBytesSent = static_cast<double>(loads.mostBytesSent),
                  .mostHopUs = loads.mostHopUs,
                  .messages = 0,
                  .busiest = busiestOf(cluster_, loads),
                  .hops = hopsOf(traffic),
                  .slowest = slowestRank(traffic),
                  .ranksPerNode = cluster_.mostRanksPerNode()};
  facts_[key] = facts;
  return facts;
}

Result<LinkUse> Estimator::linkUseOf(const SimCall& call, const Method& method) const {
  TUTTI_TRY_ASSIGN(const Traffic traffic, referenceTraffic(call, method));
  TUTTI_TRY_ASSIGN(const LinkLoads loads, referenceLoads(traffic, method));
  if (loads.longestFlow <= 0) return LinkUse{};
  // Where one channel stood for all, each of theirs is so much shorter.
  const double flow = loads.longestFlow * referenceChannels(method) / method.channelCount;
  LinkUse use{.flowBytes = flow / static_cast<double>(kReferenceBytes), .crossings = {}};
  for (int32_t link = 0; link < cluster_.linkCount(); ++link) {
    const double bytes = loads.wireBytes[static_cast<size_t>(link)];
    if (bytes > 0) use.crossings.push_back({link, bytes / flow});
  }
  return use;
}

Result<Estimate> Estimator::estimate(const SimCall& call, const Method& method,
                                     const Timing& timing) {
  TUTTI_TRY_ASSIGN(LoadFacts facts, factsOf(call, method));
  const double scale = static_cast<double>(call.bytes) / static_cast<double>(kReferenceBytes);
  facts.mostBytesSent *= scale;
  facts.busiest.us *= scale * wireFactor(method.protocol);
  return combine(cluster_, call, method, timing, facts);
}

double busGbPerSecond(Collective collective, int32_t rankCount, uint64_t bytes, double us) {
  const double factor = busFactor(collective, rankCount);
  return us > 0 ? static_cast<double>(bytes) * factor / (us * kBytesPerUs) : 0;
}

}  // namespace tutti::sim
