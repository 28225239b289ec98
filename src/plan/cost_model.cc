#include "plan/cost_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "base/units.h"
#include "plan/pieces.h"
#include "schedule/references.h"
#include "wire/link.h"

namespace tutti::plan {
namespace {

constexpr double kMb = 1e6;
// What is left, between processes, of what the prices make of long messages that a receiver may
// read where the sender has them. Where the kernel's reading wins: 0.5 to 0.88, all-gather,
// all-to-all and reduce-scatter of 64 KB to 16 MB by 2 ranks on 2 CPUs of an Intel Xeon VM,
// 2026-11-21. Where it is too slow, copies are: two-shot over one-shot, which has none such,
// all-reduce of 64 KB to 4 MB by 2 ranks 0.81 to 0.97 by copies, at their price 1.27 (AMD EPYC
// family 26, 2026-11-27). Where ranks share CPUs, 0.5 to 1.8: there it counts for nothing.
constexpr double kReferableShare = 0.75;

size_t place(CostTerm term) { return static_cast<size_t>(term); }

// How often the busiest CPU does something: as often as the busiest rank, or, where a CPU holds
// several, as often as its ranks do together. With the busiest rank's work for every rank of the
// CPU, a root that serves all others looked as dear as all-to-all, and 88 % of the choices were
// good instead of 94 (docs/results/2026-11-21-choice.md).
class Work {
 public:
  explicit Work(const CostedCall& call) : cpus_(call.rankCount / call.ranksPerCpu) {}
  double of(double busiestRank, double allRanks) const {
    return std::max(busiestRank, allRanks / cpus_);
  }

 private:
  double cpus_;
};

}  // namespace

std::string_view nameOf(CostTerm term) {
  switch (term) {
    case CostTerm::kCall: return "call";
    case CostTerm::kHop: return "hop";
    case CostTerm::kLine: return "line";
    case CostTerm::kMessage: return "message";
    case CostTerm::kSlotMb: return "slot_mb";
    case CostTerm::kColdMb: return "cold_mb";
    case CostTerm::kReferencedMb: return "referenced_mb";
    case CostTerm::kNetHop: return "hop";
    case CostTerm::kNetMessage: return "message";
    case CostTerm::kNetLink: return "link";
    case CostTerm::kNetMb: return "mb";
    case CostTerm::kNetFoldedMb: return "folded_mb";
    case CostTerm::kNetWireMb: return "wire_mb";
  }
  return "?";
}

namespace {

// Chunks that are copied, one after the other, until a call by references is over. Who sends one
// copies nothing: the readers do, all at once. Whoever passes data on waits for its first piece,
// and the call waits for the last reader; copies in slots, which the next call's follow at once,
// show none of that.
double referencedChunks(const schedule::Cost& cost, const Work& work, size_t chunkBytes) {
  const auto pieces =
      static_cast<double>(std::max<size_t>(divideUp(chunkBytes, directPieceBytes(chunkBytes)), 1));
  const double chunks = work.of(cost.receivedMessages, static_cast<double>(cost.messages));
  return (chunks * (pieces - 1) + std::max<double>(chunks, cost.hops)) / pieces;
}

// How much of a CPU's slots its cache has lost when their turn comes again, call after call: a rank
// that talks to all others goes through more memory than one of a ring. Counted so, prices fitted
// to one measurement name a good algorithm in 94 to 96 % of another's cells, without in 92 to 95 %
// (2, 16 and 64 CPUs, Intel Xeon VMs, 2026-11-22; from a quarter to four times the cache it is the
// same).
double coldShare(const schedule::Cost& cost, const CostedCall& call, double pieceBytes) {
  constexpr double kCacheBytes = 1_MiB;
  const auto links = static_cast<double>(cost.links == 0 ? cost.messages : cost.links);
  const double ofACpu = links * call.ranksPerCpu / call.rankCount * call.slotCount * pieceBytes;
  return ofACpu / (ofACpu + kCacheBytes);
}

// A piece between hosts costs its program's trips, which the next piece's do not overlap with.
void addCrossings(const CostedCall& call, double pieces, double chunkBytes, CostTerms& counts) {
  const Crossings& crossings = call.crossings;
  const double ofACpu = 2.0 * crossings.hostMessages * call.ranksPerCpu / crossings.hostRanks;
  counts[place(CostTerm::kNetHop)] = crossings.hops * pieces;
  counts[place(CostTerm::kNetMessage)] = std::max<double>(crossings.rankMessages, ofACpu) * pieces;
  counts[place(CostTerm::kNetLink)] = crossings.rankLinks * call.ranksPerCpu;
  counts[place(CostTerm::kNetMb)] = crossings.hostPassages * chunkBytes / kMb;
  counts[place(CostTerm::kNetWireMb)] = crossings.hostMessages * chunkBytes / kMb;
  counts[place(CostTerm::kNetFoldedMb)] = crossings.hostFolds * chunkBytes / kMb;
}

// Of a schedule's messages those that stay on their host.
struct Inside {
  double hops = 0;
  double most = 0;  // that the busiest rank sends, or receives
  double all = 0;
};

Inside insideOf(const schedule::Cost& cost, const CostedCall& call) {
  const Crossings& crossings = call.crossings;
  const auto left = [](double messages, double gone) { return std::max(messages - gone, 0.0); };
  const double most = std::max(cost.sentMessages, cost.receivedMessages);
  return {.hops = left(cost.hops, crossings.hops),
          .most = left(most, crossings.rankMessages),
          .all = left(static_cast<double>(cost.messages),
                      static_cast<double>(crossings.hostMessages) * crossings.hostCount)};
}

}  // namespace

Counted countedOf(const schedule::Algorithm& algorithm, const CostedCall& call) {
  Counted counted;
  if (call.inNetwork && algorithm.reducesInNetwork()) {
    const int32_t chunks =
        algorithm.chunksOf({.rankCount = call.rankCount, .headCount = call.inNetwork->headCount});
    counted.cost = schedule::costOf(algorithm, *call.inNetwork);
    counted.chunks = {.bytes = divideUp(call.bytes, static_cast<uint64_t>(chunks)),
                      .filled = chunks};
  } else {
    counted.chunks = schedule::chunksOf(algorithm, call.rankCount, call.bytes);
    counted.cost = schedule::costOf(algorithm, {.rankCount = call.rankCount,
                                                .hostCount = call.hostCount,
                                                .chunks = counted.chunks.filled});
  }
  const int32_t blocks = schedule::blockCount(algorithm.collective, call.rankCount);
  counted.meanBytes = static_cast<double>(call.bytes) / (blocks * counted.chunks.filled);
  return counted;
}

CostTerms countTerms(const schedule::Algorithm& algorithm, const CostedCall& call) {
  const auto [cost, chunks, meanBytes] = countedOf(algorithm, call);
  const uint64_t chunkBytes = chunks.bytes;
  const bool isLine = chunkBytes <= wire::kInlineBytes;
  const bool isReferable = schedule::isReferable(algorithm);
  const bool isReferenced = call.readsPeers && isReferable && chunkBytes >= kDirectMinBytes;
  const size_t pieceBytes = pieceBytesFor(chunkBytes, {.slotBytes = call.slotBytes,
                                                       .isCrowded = call.ranksPerCpu > 1,
                                                       .isOneHost = call.isOneHost});
  const double pieces =
      isReferenced ? 1 : static_cast<double>(std::max<size_t>(divideUp(chunkBytes, pieceBytes), 1));
  const Work work(call);
  const Inside inside = insideOf(cost, call);
  const double copies =
      isReferenced ? referencedChunks(cost, work, chunkBytes) : work.of(inside.most, inside.all);
  const bool mayBeRead = call.isOneHost && !call.readsPeers && isReferable &&
                         chunkBytes >= kKernelMinBytes && call.ranksPerCpu <= 1;
  CostTerms counts{};
  counts[place(CostTerm::kCall)] = 1;
  counts[place(CostTerm::kHop)] = inside.hops * call.ranksPerCpu;
  counts[place(isLine ? CostTerm::kLine : CostTerm::kMessage)] =
      work.of(inside.most, 2 * inside.all) * pieces;
  const double copied = copies * meanBytes * (mayBeRead ? kReferableShare : 1) / kMb;
  counts[place(isReferenced ? CostTerm::kReferencedMb : CostTerm::kSlotMb)] = copied;
  if (!isReferenced) {
    counts[place(CostTerm::kColdMb)] =
        copied * coldShare(cost, call, static_cast<double>(std::min(pieceBytes, chunkBytes)));
  }
  addCrossings(call, pieces, meanBytes, counts);
  return counts;
}

double predictUs(const CostPrices& prices, const CostTerms& counts) {
  double us = 0;
  for (size_t i = 0; i < kCostTermCount; ++i) us += prices.us[i] * counts[i];
  return us;
}

namespace {

// Of a sample's counts, in parts of what was measured: errors are relative.
struct Row {
  CostTerms parts{};
};

// How much a price's distance from the usual one weighs beside a sample's error. Chosen by fitting
// to one measurement of all collectives and choosing in another (2 CPUs of an Intel Xeon VM,
// 2026-11-21): up to .03 it costs nothing, with 1 the share of good choices falls from 91 to 78 %.
constexpr double kPull = .02;

double pullOf(const CostTerms* usual, size_t term) {
  if (usual == nullptr || (*usual)[term] <= 0) return 0;
  return kPull / ((*usual)[term] * (*usual)[term]);
}

}  // namespace

CostTerms fitPrices(std::span<const CostSample> samples, const CostTerms* usual) {
  // Coordinate by coordinate, each to its best value not below 0: converges, as the sum of squares
  // is convex.
  constexpr int kRounds = 2000;
  std::vector<Row> rows;
  std::vector<double> error;  // what is still unexplained of each, 1: all
  for (const CostSample& each : samples) {
    if (each.us <= 0) continue;
    error.push_back(1 - each.knownUs / each.us);
    Row& row = rows.emplace_back();
    for (size_t term = 0; term < kCostTermCount; ++term)
      row.parts[term] = each.counts[term] / each.us;
  }
  CostTerms prices{};
  for (int round = 0; round < kRounds; ++round) {
    double moved = 0;
    for (size_t term = 0; term < kCostTermCount; ++term) {
      const double pull = pullOf(usual, term);
      double along = pull == 0 ? 0 : pull * ((*usual)[term] - prices[term]);
      double square = pull;
      for (size_t i = 0; i < rows.size(); ++i) {
        along += rows[i].parts[term] * error[i];
        square += rows[i].parts[term] * rows[i].parts[term];
      }
      if (square == 0) continue;
      const double change = std::max(along / square, -prices[term]);
      prices[term] += change;
      for (size_t i = 0; i < rows.size(); ++i) error[i] -= change * rows[i].parts[term];
      moved = std::max(moved, std::abs(change) / (prices[term] + 1e-12));
    }
    if (moved < 1e-9) break;
  }
  return prices;
}

CostTerms fitNetwork(std::span<const CostSample> samples) {
  std::vector<CostSample> crossing(samples.begin(), samples.end());
  for (CostSample& each : crossing) {
    std::fill_n(each.counts.begin(), kFirstNetTerm, 0.0);
    each.counts[place(CostTerm::kNetWireMb)] = 0;  // which is no matter of time that CPUs take
  }
  return fitPrices(crossing);
}

std::vector<CostPrices> fitAll(std::span<const MeasuredCall> calls) {
  std::map<RankKind, std::vector<CostSample>> byKind;
  std::map<std::tuple<Collective, RankKind, std::string_view>, std::vector<CostSample>> byAlgorithm;
  for (const MeasuredCall& each : calls) {
    byKind[each.kind].push_back(each.sample);
    byAlgorithm[{each.collective, each.kind, each.algorithm}].push_back(each.sample);
  }
  std::map<RankKind, CostTerms> usual;
  for (const auto& [kind, samples] : byKind) usual[kind] = fitPrices(samples);
  std::vector<CostPrices> prices;
  for (const auto& [key, samples] : byAlgorithm) {
    const auto& [collective, kind, algorithm] = key;
    prices.push_back({.collective = collective,
                      .kind = kind,
                      .algorithm = algorithm,
                      .us = fitPrices(samples, &usual[kind])});
  }
  return prices;
}

}  // namespace tutti::plan
