#include "sim/edges.h"

#include <algorithm>
#include <utility>

#include "sim/time_constants.h"

namespace tutti::sim {
namespace {

using schedule::Operand;
using schedule::Place;
using schedule::Step;

struct Use {
  uint64_t bytes = 0;
  uint64_t wireBytes = 0;
  uint64_t messages = 0;
  Use& operator+=(const Use& other) {
    bytes += other.bytes;
    wireBytes += other.wireBytes;
    messages += other.messages;
    return *this;
  }
  Use operator-(const Use& other) const {
    return {bytes - other.bytes, wireBytes - other.wireBytes, messages - other.messages};
  }
};

// All pieces of a chunk.
Use useOf(const Traffic& traffic, const Lane& lane, int32_t chunk) {
  Use use;
  for (size_t piece = 0; piece < lane.layout.pieceCount; ++piece) {
    const uint64_t bytes = lane.bytesOf(chunk, piece);
    if (bytes == 0) break;
    use += {bytes, wireBytes(traffic.method().protocol, bytes), 1};
  }
  return use;
}

// A ring's edge carries every chunk in each of its phases but one: in the first the one that the
// sender finishes, in the second the one that the receiver has finished itself.
std::vector<Edge> ringEdges(const Traffic& traffic, int32_t channel) {
  const int32_t ranks = traffic.rankCount();
  const Lane lane = traffic.lane(channel, Rank{0});
  std::vector<Use> chunks;
  Use total;
  for (int32_t chunk = 0; chunk < ranks; ++chunk) {
    chunks.push_back(useOf(traffic, lane, chunk));
    total += chunks.back();
  }
  const Collective collective = traffic.call().collective;
  const auto order = traffic.order(channel);
  const auto at = [&](int32_t i) {
    return order.empty() ? Rank{i % ranks} : order[static_cast<size_t>(i % ranks)];
  };
  std::vector<Edge> edges;
  edges.reserve(static_cast<size_t>(ranks));
  for (int32_t i = 0; i < ranks && ranks > 1; ++i) {
    const Rank from = at(i), to = at(i + 1);
    Use use;
    const auto chunkOf = [&](int32_t place) {
      return chunks[static_cast<size_t>(traffic.ringChunkOf(channel, place % ranks))];
    };
    if (collective != Collective::kAllGather) use += total - chunkOf(i);
    if (collective != Collective::kReduceScatter) use += total - chunkOf(i + 1);
    if (use.messages > 0) edges.push_back({from, to, use.bytes, use.wireBytes, use.messages});
  }
  return edges;
}

// Between a rank and its parent a tree's chunk goes up once and down once.
std::vector<Edge> treeEdges(const Traffic& traffic, int32_t channel) {
  const graph::MergedGraph& merged = traffic.plan().merged;
  const Lane lane = traffic.lane(channel, Rank{0});
  std::vector<Edge> edges;
  edges.reserve(2 * static_cast<size_t>(traffic.rankCount()) *
                static_cast<size_t>(traffic.chunkCount()));
  for (int32_t tree = 0; tree < traffic.chunkCount(); ++tree) {
    const Use use = useOf(traffic, lane, tree);
    if (use.messages == 0) continue;
    for (int32_t rank = 0; rank < traffic.rankCount(); ++rank) {
      const Rank up = merged.treeLinks(channel % merged.treeChannelCount(), tree, Rank{rank}).up;
      if (up == schedule::kNobody) continue;
      edges.push_back({Rank{rank}, up, use.bytes, use.wireBytes, use.messages});
      edges.push_back({up, Rank{rank}, use.bytes, use.wireBytes, use.messages});
    }
  }
  return edges;
}

// By ends, one of each: both trees may join the same two ranks.
void sortAndMerge(std::vector<Edge>& edges) {
  const auto ends = [](const Edge& edge) { return std::pair(edge.from, edge.to); };
  std::ranges::stable_sort(edges, {}, ends);
  size_t kept = 0;
  for (const Edge& edge : edges) {
    if (kept > 0 && ends(edges[kept - 1]) == ends(edge)) {
      edges[kept - 1].bytes += edge.bytes;
      edges[kept - 1].wireBytes += edge.wireBytes;
      edges[kept - 1].messages += edge.messages;
    } else {
      edges[kept++] = edge;
    }
  }
  edges.resize(kept);
}

void addEdges(const Traffic& traffic, int32_t channel, Rank rank, std::vector<Edge>& edges) {
  const Lane lane = traffic.lane(channel, rank);
  const size_t first = edges.size();
  for (const Rank to : lane.program->sendsTo) edges.push_back({.from = rank, .to = to});
  for (const Step& step : lane.program->steps) {
    const Use use = useOf(traffic, lane, step.chunk);
    for (const Operand& operand : lane.program->destinations(step)) {
      if (operand.place != Place::kLink) continue;
      Edge& edge = edges[first + static_cast<size_t>(operand.index)];
      edge.bytes += use.bytes;
      edge.wireBytes += use.wireBytes;
      edge.messages += use.messages;
    }
  }
}

// In any order, and those that both trees have twice.
std::vector<Edge> unsortedEdges(const Traffic& traffic, int32_t channel) {
  if (traffic.isRing()) return ringEdges(traffic, channel);
  if (traffic.followsTrees()) return treeEdges(traffic, channel);
  std::vector<Edge> edges;
  for (int32_t rank = 0; rank < traffic.rankCount(); ++rank)
    addEdges(traffic, channel, Rank{rank}, edges);
  std::erase_if(edges, [](const Edge& edge) { return edge.messages == 0; });
  return edges;
}

}  // namespace

std::vector<Edge> edgesOf(const Traffic& traffic, int32_t channel) {
  std::vector<Edge> edges = unsortedEdges(traffic, channel);
  if (traffic.isRing()) {
    std::ranges::sort(edges, {}, [](const Edge& edge) { return index(edge.from); });
  } else if (traffic.followsTrees()) {
    sortAndMerge(edges);
  }
  return edges;
}

Result<LinkLoads> loadsOf(const Traffic& traffic) {
  const Cluster& cluster = traffic.cluster();
  LinkLoads loads;
  loads.wireBytes.resize(static_cast<size_t>(cluster.linkCount()));
  std::vector<uint64_t> sent(static_cast<size_t>(traffic.rankCount()));
  for (int32_t channel = 0; channel < traffic.channelCount(); ++channel) {
    for (const Edge& edge : unsortedEdges(traffic, channel)) {
      TUTTI_TRY_ASSIGN(const FlowRoute route, traffic.route(channel, edge.from, edge.to));
      for (const int32_t link : route.links)
        loads.wireBytes[static_cast<size_t>(link)] += static_cast<double>(edge.wireBytes);
      loads.longestFlow = std::max(loads.longestFlow, static_cast<double>(edge.wireBytes));
      sent[static_cast<size_t>(index(edge.from))] += edge.bytes;
      loads.messages += edge.messages;
      loads.bytes += edge.bytes;
      const double hopUs =
          route.switchCount * cluster.network().description().switchLatencyUs + route.portLatencyUs;
      loads.mostHopUs = std::max(loads.mostHopUs, hopUs);
    }
  }
  for (const uint64_t bytes : sent) loads.mostBytesSent = std::max(loads.mostBytesSent, bytes);
  return loads;
}

BusiestLink busiestOf(const Cluster& cluster, const LinkLoads& loads) {
  BusiestLink busiest;
  constexpr double kBytesPerUs = 1e3;  // at 1 GB/s
  for (int32_t link = 0; link < cluster.linkCount(); ++link) {
    const double bytes = loads.wireBytes[static_cast<size_t>(link)];
    if (bytes <= 0) continue;
    const double share = cluster.isNetworkLink(link) ? kNetworkShare : 1;
    const double us = bytes / (cluster.gbPerSecond(link) * share * kBytesPerUs);
    if (us > busiest.us) busiest = {link, us};
  }
  return busiest;
}

}  // namespace tutti::sim
