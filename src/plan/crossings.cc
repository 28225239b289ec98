#include "plan/crossings.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace tutti::plan {
namespace {

using schedule::Place;
using schedule::Program;

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

int32_t countHosts(std::span<const int32_t> hostOf) {
  std::vector<int32_t> hosts(hostOf.begin(), hostOf.end());
  std::ranges::sort(hosts);
  return static_cast<int32_t>(std::ranges::unique(hosts).begin() - hosts.begin());
}

}  // namespace

Crossings crossingsOf(const schedule::Algorithm& algorithm,
                      const schedule::ScheduleOptions& options, std::span<const int32_t> hostOf,
                      int32_t filledChunks) {
  const int32_t hosts = countHosts(hostOf);
  if (hosts < 2) return {};
  const int32_t host = hostOf[static_cast<size_t>(index(options.root))];
  Crossings found{
      .hops = algorithm.hostHops(options.rankCount, hosts), .hostRanks = 0, .hostCount = hosts};
  const Filled filled{
      .chunksPerBlock = algorithm.chunkCount(options.rankCount) /
                        schedule::blockCount(algorithm.collective, options.rankCount),
      .first = filledChunks};
  Messages all;
  for (int32_t rank = 0; rank < options.rankCount; ++rank) {
    if (hostOf[static_cast<size_t>(rank)] != host) continue;
    const Messages own =
        crossing(schedule::buildProgram(algorithm, options, Rank{rank}), host, hostOf, filled);
    found.rankMessages = std::max(found.rankMessages, own.most());
    all.sent += own.sent;
    all.received += own.received;
    found.hostFolds += own.folded;
    found.rankLinks = std::max(found.rankLinks, own.links);
    ++found.hostRanks;
  }
  found.hostMessages = all.most();
  found.hostPassages = all.sent + all.received;
  return found;
}

}  // namespace tutti::plan
