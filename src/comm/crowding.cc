#include "comm/crowding.h"

#include <algorithm>
#include <set>
#include <utility>

namespace tutti::comm {
namespace {

void unite(CpuMask& mask, const CpuMask& other) {
  for (size_t i = 0; i < mask.size(); ++i) mask[i] |= other[i];
}

// Of the CPUs in the mask, the one with so many before it.
int32_t numberOf(const CpuMask& mask, int32_t before) {
  for (int32_t cpu = 0;; ++cpu) {
    const bool isIn = (mask[static_cast<size_t>(cpu) / 64] >> (cpu % 64) & 1) != 0;
    if (isIn && before-- == 0) return cpu;
  }
}

// Of `count` ranks that may all use these CPUs, the one of the rank with so many before it.
int32_t homeAt(const CpuMask& mask, int32_t position, int32_t count) {
  return numberOf(mask, static_cast<int32_t>(int64_t{position} * countOf(mask) / count));
}

}  // namespace

int32_t cpusOfHost(std::span<const RankCpus> ranks, uint64_t host) {
  CpuMask together{};
  int32_t limit = INT32_MAX;
  for (const RankCpus& rank : ranks) {
    if (rank.host != host) continue;
    unite(together, rank.mask);
    const int32_t own = countOf(rank.mask);
    if (own == 0 || rank.usable < own) limit = std::min(limit, rank.usable);
  }
  return std::max(std::min(countOf(together), limit), 1);
}

MachineCpus machineOf(std::span<const RankCpus> ranks, const RankCpus& rank) {
  CpuMask together{};
  std::set<uint64_t> hosts;
  int32_t count = 0;
  for (const RankCpus& each : ranks) {
    const bool isHere = rank.machine != 0 ? each.machine == rank.machine : each.host == rank.host;
    if (!isHere) continue;
    unite(together, each.mask);
    hosts.insert(each.host);
    ++count;
  }
  int32_t byHosts = 0;  // each within its limit
  for (const uint64_t host : hosts) byHosts += cpusOfHost(ranks, host);
  return {.ranks = count, .cpus = std::max(std::min(countOf(together), byHosts), 1)};
}

double ranksPerCpu(std::span<const RankCpus> ranks) {
  double most = 1;
  for (const RankCpus& one : ranks) {
    const auto count = std::ranges::count(ranks, one.host, &RankCpus::host);
    most = std::max(most, static_cast<double>(count) / cpusOfHost(ranks, one.host));
  }
  return most;
}

int32_t cpusEach(std::span<const RankCpus> ranks) {
  int32_t least = INT32_MAX;
  std::set<std::pair<uint64_t, uint64_t>> seen;
  for (const RankCpus& rank : ranks) {
    if (!seen.insert({rank.machine, rank.machine != 0 ? 0 : rank.host}).second) continue;
    least = std::min(least, machineOf(ranks, rank).each());
  }
  return least;
}

int32_t homeCpuOf(std::span<const RankCpus> ranks, Rank rank) {
  const RankCpus& own = ranks[static_cast<size_t>(index(rank))];
  int32_t position = 0;
  int32_t count = 0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].host != own.host) continue;
    if (ranks[i].mask != own.mask) return HomeCpu::kNone;
    if (i < static_cast<size_t>(index(rank))) ++position;
    ++count;
  }
  const int32_t cpus = countOf(own.mask);
  if (cpus < 2 || own.usable < cpus || count < cpus) return HomeCpu::kNone;
  return homeAt(own.mask, position, count);
}

std::vector<uint8_t> sharersOfHome(std::span<const RankCpus> ranks, Rank rank) {
  const int32_t home = homeCpuOf(ranks, rank);
  if (home == HomeCpu::kNone) return {};
  const RankCpus& own = ranks[static_cast<size_t>(index(rank))];
  const auto count = static_cast<int32_t>(std::ranges::count(ranks, own.host, &RankCpus::host));
  int32_t position = 0;
  std::vector<uint8_t> shares;
  for (const RankCpus& each : ranks) {
    const bool isElsewhere = each.host == own.host && homeAt(own.mask, position++, count) != home;
    shares.push_back(isElsewhere ? 0 : 1);
  }
  return shares;
}

}  // namespace tutti::comm
