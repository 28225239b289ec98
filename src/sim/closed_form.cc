#include "sim/closed_form.h"

#include <algorithm>

#include "schedule/catalog.h"
#include "wire/bus_factor.h"

namespace tutti::sim {
namespace {

constexpr double kBytesPerUs = 1e3;  // at 1 GB/s

double slowestRank(const Traffic& traffic) {
  double slowest = 1;
  for (int32_t rank = 0; rank < traffic.rankCount(); ++rank)
    slowest = std::min(slowest, traffic.cluster().speedOf(Rank{rank}));
  return slowest;
}

// Trees, whose messages go up while others go down, are nearer to what is played event by event
// without: 18 % below to 15 % above from 16 MB on, of 16 and 64 ranks.
double chainedBytes(const Traffic& traffic) {
  const bool isChain = traffic.isPipeline() && !traffic.followsTrees();
  return isChain ? static_cast<double>(traffic.chunkBytes()) : 0;
}

// What the first of the messages that follow each other takes until it is through all ranks, beyond
// its hops: each passes it on only once it has all of it.
double fillUs(graph::Protocol protocol, const LoadFacts& facts, double lanesUs) {
  if (facts.chainedBytes <= 0) return 0;
  const auto piece = static_cast<double>(
      pipelinedPieceBytes(protocol, static_cast<uint64_t>(facts.chainedBytes), facts.hops.all()));
  const double pieces = std::max(facts.chainedBytes / piece, 1.0);
  const double copyUs = lanesUs / std::max(facts.sentCopies, 1.0);
  return static_cast<double>(facts.hops.all()) * copyUs / pieces;
}

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
  made.latencyUs += fillUs(protocol, facts, lanesUs);
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
                  .ranksPerNode = traffic.cluster().mostRanksPerNode(),
                  .chainedBytes = chainedBytes(traffic),
                  .sentCopies = static_cast<double>(loads.mostBytesSent) /
                                static_cast<double>(std::max<uint64_t>(traffic.call().bytes, 1))});
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
  LoadFacts facts{
      .mostBytesSent = static_cast<double>(loads.mostBytesSent),
      .mostHopUs = loads.mostHopUs,
      .messages = 0,
      .busiest = busiestOf(cluster_, loads),
      .hops = hopsOf(traffic),
      .slowest = slowestRank(traffic),
      .ranksPerNode = cluster_.mostRanksPerNode(),
      .chainedBytes = chainedBytes(traffic) * traffic.channelCount() / method.channelCount,
      .sentCopies = static_cast<double>(loads.mostBytesSent) / kReferenceBytes};
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
  facts.chainedBytes *= scale;
  facts.busiest.us *= scale * wireFactor(method.protocol);
  return combine(cluster_, call, method, timing, facts);
}

double busGbPerSecond(Collective collective, int32_t rankCount, uint64_t bytes, double us) {
  const double factor = busFactor(collective, rankCount);
  return us > 0 ? static_cast<double>(bytes) * factor / (us * kBytesPerUs) : 0;
}

}  // namespace tutti::sim
