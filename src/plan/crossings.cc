#include "plan/crossings.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace tutti::plan {
namespace {

using schedule::Place;
using schedule::Program;

// A tree's ranks do unlike work, but of a few next to each other one does as much as any.
constexpr size_t kHostsLookedAt = 4;

// Which chunks hold something.
struct Filled {
  int32_t chunksPerBlock = 1;
  int32_t first = 1;  // of each block's
  bool holds(int32_t chunk) const { return chunk % chunksPerBlock < first; }
};

struct Messages {
  int32_t sent = 0;
  int32_t received = 0;
  int32_t folded = 0;  // of those received
  int32_t links = 0;
  int32_t most() const { return std::max(sent, received); }
};

// Messages of one rank that leave its host or come from another.
Messages crossing(const Program& program, int32_t host, std::span<const int32_t> hostOf,
                  const Filled& filled) {
  const auto isElsewhere = [&](Rank peer) {
    const auto rank = static_cast<size_t>(index(peer));
    return rank >= hostOf.size() || hostOf[rank] != host;  // beyond: a network that reduces
  };
  Messages found;
  std::vector<bool> isSentOn(program.sendsTo.size());
  std::vector<bool> isReceivedOn(program.receivesFrom.size());
  for (const schedule::Step& step : program.steps) {
    if (!filled.holds(step.chunk)) continue;
    const auto operands = program.allOperands(step);
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].place != Place::kLink) continue;
      const auto position = static_cast<size_t>(operands[i].index);
      const bool isSource = i < step.sourceCount;
      const Rank peer = isSource ? program.receivesFrom[position] : program.sendsTo[position];
      if (!isElsewhere(peer)) continue;
      (isSource ? isReceivedOn : isSentOn)[position] = true;
      ++(isSource ? found.received : found.sent);
      if (isSource && step.sourceCount > 1) ++found.folded;
    }
  }
  found.links = static_cast<int32_t>(std::ranges::count(isSentOn, true) +
                                     std::ranges::count(isReceivedOn, true));
  return found;
}

// Each once, the root's first.
std::vector<int32_t> hostsFrom(std::span<const int32_t> hostOf, Rank root) {
  std::vector<int32_t> hosts(hostOf.begin(), hostOf.end());
  std::ranges::sort(hosts);
  hosts.erase(std::ranges::unique(hosts).begin(), hosts.end());
  const auto first = std::ranges::find(hosts, hostOf[static_cast<size_t>(index(root))]);
  std::rotate(hosts.begin(), first, hosts.end());
  return hosts;
}

// Those of one host; nothing is said of hops.
Crossings crossingsOfHost(int32_t host, const schedule::Algorithm& algorithm,
                          const schedule::ScheduleOptions& options, std::span<const int32_t> hostOf,
                          const Filled& filled) {
  Crossings found{.hostRanks = 0};
  Messages all;
  for (int32_t rank = 0; rank < options.rankCount; ++rank) {
    if (hostOf[static_cast<size_t>(rank)] != host) continue;
    const Messages own =
        crossing(schedule::buildProgram(algorithm, options, Rank{rank}), host, hostOf, filled);
    found.rankMessages = std::max(found.rankMessages, own.most());
    found.rankLinks = std::max(found.rankLinks, own.links);
    found.hostFolds += own.folded;
    all.sent += own.sent;
    all.received += own.received;
    ++found.hostRanks;
  }
  found.hostMessages = all.most();
  found.hostPassages = all.sent + all.received;
  return found;
}

}  // namespace

Crossings crossingsOf(const schedule::Algorithm& algorithm,
                      const schedule::ScheduleOptions& options, std::span<const int32_t> hostOf,
                      int32_t filledChunks) {
  if (hostOf.empty()) return {};
  const std::vector<int32_t> hosts = hostsFrom(hostOf, options.root);
  if (hosts.size() < 2) return {};
  const Filled filled{
      .chunksPerBlock = algorithm.chunkCount(options.rankCount) /
                        schedule::blockCount(algorithm.collective, options.rankCount),
      .first = filledChunks};
  Crossings busiest;
  for (const int32_t host : std::span(hosts).first(std::min(hosts.size(), kHostsLookedAt))) {
    const Crossings found = crossingsOfHost(host, algorithm, options, hostOf, filled);
    if (found.hostPassages > busiest.hostPassages) busiest = found;
  }
  busiest.hostCount = static_cast<int32_t>(hosts.size());
  busiest.hops = algorithm.hostHops(options.rankCount, busiest.hostCount);
  return busiest;
}

}  // namespace tutti::plan
