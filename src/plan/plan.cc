#include "plan/plan.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "base/fnv.h"
#include "base/units.h"
#include "plan/algorithm_filter.h"
#include "plan/choice.h"
#include "plan/pieces.h"
#include "schedule/catalog.h"
#include "schedule/references.h"

namespace tutti::plan {
namespace {

using schedule::Algorithm;

int32_t hopsOf(const Algorithm& algorithm, const Agreement& agreement) {
  return schedule::costOf(algorithm,
                          schedule::evenSpread(agreement.rankCount, agreement.evenHostCount()))
      .hops;
}

// Where the kernel copies what one rank moves to or from others, over one hop, by ranks with a CPU
// each, messages need not fit a slot, since copies would not be the better form. Of exchanges it
// depends on the machine, and trials tell: references of 64 KiB to 8 MiB take 0.8 of the time of
// copies on an Intel Xeon VM (2026-11-22), 1.25 to 2.2 on an AMD EPYC VM (2026-11-25), where reads
// are not fast.
bool isReadLong(const CallShape& shape, const Algorithm& algorithm, const Agreement& agreement,
                size_t chunkBytes) {
  const bool isOneSided =
      isPointToPoint(shape.collective) || shape.collective == Collective::kBroadcast ||
      shape.collective == Collective::kScatter || shape.collective == Collective::kGather;
  return agreement.readsFastByKernel && !agreement.isCrowded() && isOneSided &&
         chunkBytes >= kKernelLongMinBytes &&
         vectorBytes(shape, agreement.rankCount) <= kKernelLongMaxBytes &&
         hopsOf(algorithm, agreement) == 1;
}

// Where ranks share CPUs and pass a broadcast on, references make each wait for the next: 8 ranks,
// 1 MiB, ring: 0.87 ms, and 0.53 as copies (2 CPUs of an Intel Xeon VM, 2026-11-22).
bool isRelayedByCrowd(const CallShape& shape, const Algorithm& algorithm,
                      const Agreement& agreement) {
  return shape.collective == Collective::kBroadcast && agreement.isCrowded() &&
         hopsOf(algorithm, agreement) > 1;
}

// Where reads of more than two ranks a CPU were tried, they lost.
bool sharesCpusByTwo(const Agreement& agreement) {
  return agreement.isCrowded() && agreement.ranksPerCpu <= 2;
}

// Where ranks share CPUs, a read that is not fast is tried where it may win, as few long calls make
// up for a trial: 16 MiB, all-gather by 4 ranks 1.2 of the time, by 8 1.4 (2 CPUs of an AMD EPYC
// VM, family 25, 2026-11-28). While such a machine's CPUs share no cache, copies take up to four
// times as long, and reads as long as ever: in that state of another one reads take, of all-to-alls
// of 256 KiB to 4 MiB by 4 ranks, 0.45 to 0.55 of the time, of 16 MiB 0.7 to 0.8, by 8 0.75 to 1.4;
// of all-gathers by 4 of 4 MiB 0.55, of 16 MiB 0.85, by 8 1.2 (2026-11-30).
bool triesReads(const CallShape& shape, const Agreement& agreement) {
  if (!agreement.readsByKernel) return false;
  if (agreement.readsFastByKernel || !agreement.isCrowded()) return true;
  if (!agreement.isOneHost || !sharesCpusByTwo(agreement)) return false;
  const auto ranks = static_cast<size_t>(agreement.rankCount);
  const size_t allBytes = vectorBytes(shape, agreement.rankCount) * ranks;
  if (shape.collective == Collective::kAllToAll) return allBytes <= kKernelSlowExchangeMostBytes;
  return shape.collective == Collective::kAllGather && allBytes <= kKernelSlowGatherMostBytes;
}

// From which length on messages are tried as references that the kernel reads.
size_t readFromBytes(const CallShape& shape, const Agreement& agreement) {
  if (!agreement.isCrowded() || shape.collective == Collective::kAllToAll) return kKernelMinBytes;
  const bool isGather = shape.collective == Collective::kAllGather && sharesCpusByTwo(agreement);
  return isGather ? kKernelGatherMinBytes : kKernelCrowdedMinBytes;
}

// A network takes what lies in its ring.
bool isReferable(const CallShape& shape, const Algorithm& algorithm) {
  if (algorithm.reducesInNetwork()) return false;
  return shape.op != ReduceOp::kPreMulSum && schedule::isReferable(algorithm);
}

// What both sides of a link must agree on. A send and its receive share one value; the algorithm is
// part of it because two ranks with different ones would misread each other's messages.
uint32_t shapeSignature(const CallShape& shape, const Algorithm& algorithm) {
  Fnv hash;
  const auto add = [&hash](uint64_t value) { hash.add(value); };
  if (isPointToPoint(shape.collective)) {
    add(static_cast<uint64_t>(Collective::kSend));
    add(shape.count * sizeOf(shape.type));
  } else {
    add(static_cast<uint64_t>(shape.collective));
    add(static_cast<uint64_t>(shape.type));
    add(isReduction(shape.collective) ? static_cast<uint64_t>(shape.op) : 0);
    add(hasRoot(shape.collective) ? static_cast<uint64_t>(index(shape.peer)) : 0);
    add(shape.count);
    for (const char letter : algorithm.name) add(static_cast<uint64_t>(letter));
  }
  return static_cast<uint32_t>(hash.value());
}

// Eight slots keep a sender busy while the receiver folds. Half a mebibyte, so slots of 64 KiB,
// stays inside a core's L2 cache.
constexpr uint32_t kSlotCount = 8;

// A root's short messages run ahead of readers that come late: broadcast of 256 B by 4 ranks on 2
// CPUs took 0.65 us with 8 slots, 0.52 with 16, 0.38 with 32 (Intel Xeon VM, 2026-11-22).
constexpr uint32_t kShortCount = 32;

}  // namespace

wire::LinkGeometry linkGeometry(size_t bufferBytes) {
  const size_t slotBytes = std::clamp<size_t>(roundUp(bufferBytes / kSlotCount, kCacheLineBytes),
                                              kCacheLineBytes, wire::kMaxSlotBytes);
  return {.slotCount = kSlotCount,
          .slotBytes = static_cast<uint32_t>(slotBytes),
          .shortCount = slotBytes > wire::kShortBytes ? kShortCount : 0};
}

// Short calls go round the whole ring: all-to-all of 8 bytes took 8 MiB of shared memory a rank
// where 64 had 32 slots a link. Links to all others stay below 2 MiB a rank, and half of that is
// left for those of sends.
wire::LinkGeometry amongRanks(const wire::LinkGeometry& geometry, size_t rankCount) {
  constexpr size_t kMostShortBytes = 2_MiB;
  wire::LinkGeometry result = geometry;
  while (result.shortCount > result.slotCount &&
         rankCount * result.shortCount * wire::kShortBytes > kMostShortBytes)
    result.shortCount /= 2;
  return result;
}

// A program moves piece after piece, so each waits for the trips of its messages, 15 us and more.
// All-reduce of 16 MiB, 2 ranks over loopback, slots of 64 and 256 KiB: 24 and 13 ms (2 CPUs of
// an Intel Xeon VM, busy, least of three, 2026-11-21).
wire::LinkGeometry acrossHosts(const wire::LinkGeometry& geometry) {
  constexpr uint32_t kTimes = 4;
  return {.slotCount = geometry.slotCount,
          .slotBytes = std::min(geometry.slotBytes * kTimes, wire::kMaxSlotBytes)};
}

class ProgramCache {
 public:
  std::shared_ptr<const schedule::Program> get(const Algorithm& algorithm, const CallShape& shape,
                                               const Agreement& agreement) {
    // Shared by the plans that run it; a plan may outlive its place in this table.
    auto& program = programs_[keyOf(algorithm, shape)];
    if (program == nullptr) {
      program = std::make_shared<const schedule::Program>(
          schedule::buildProgram(algorithm, optionsFor(shape, agreement), agreement.rank));
    }
    return program;
  }

  Crossings crossings(const Algorithm& algorithm, const CallShape& shape,
                      const Agreement& agreement) {
    const auto [found, isNew] = crossings_.try_emplace(
        {keyOf(algorithm, shape), filledChunks(algorithm, shape, agreement)});
    if (isNew) found->second = crossingsFor(algorithm, shape, agreement);
    return found->second;
  }

 private:
  using Key = std::tuple<const Algorithm*, int32_t, int32_t>;
  static Key keyOf(const Algorithm& algorithm, const CallShape& shape) {
    const int32_t peer =
        hasRoot(shape.collective) || shape.collective >= Collective::kSend ? index(shape.peer) : 0;
    return {&algorithm, static_cast<int32_t>(shape.collective), peer};
  }

  std::map<Key, std::shared_ptr<const schedule::Program>> programs_;
  std::map<std::pair<Key, int32_t>, Crossings> crossings_;  // by the chunks sent, too
};

Planner::Planner(Agreement agreement)
    : agreement_(std::move(agreement)), programs_(std::make_unique<ProgramCache>()) {}
Planner::~Planner() = default;

int32_t Agreement::evenHostCount() const {
  const auto hostAt = [&](size_t place) {
    return hostOf[order.empty() ? place : static_cast<size_t>(index(order[place]))];
  };
  std::vector<size_t> firsts;  // the place of each host's first rank, were each host's together
  for (size_t place = 0; place < hostOf.size(); ++place) {
    if (place == 0 || hostAt(place) != hostAt(place - 1)) firsts.push_back(place);
  }
  const size_t hosts = firsts.size();
  if (hosts < 2 || hosts != static_cast<size_t>(std::ranges::max(hostOf)) + 1) return 1;
  for (size_t host = 0; host < hosts; ++host) {
    if (firsts[host] * hosts != host * hostOf.size()) return 1;
  }
  return static_cast<int32_t>(hosts);
}

ReduceOp NetworkReduction::operationFor(ReduceOp op) {
  return op == ReduceOp::kAvg || op == ReduceOp::kPreMulSum ? ReduceOp::kSum : op;
}

uint64_t NetworkReduction::bitOf(DataType type, ReduceOp op) {
  constexpr int kOperations = 4;  // those that operationFor() gives
  static_assert(kDataTypeCount * kOperations <= 64);
  return uint64_t{1} << (static_cast<int>(type) * kOperations + static_cast<int>(operationFor(op)));
}

bool NetworkReduction::reduces(DataType type, ReduceOp op) const {
  return headCount > 0 && (supported & bitOf(type, op)) != 0;
}

size_t vectorBytes(const CallShape& shape, int32_t rankCount) {
  return shape.count * sizeOf(shape.type) *
         static_cast<size_t>(schedule::blockCount(shape.collective, rankCount));
}

BufferBytes bufferBytes(const CallShape& shape, const Agreement& agreement) {
  const size_t whole = vectorBytes(shape, agreement.rankCount);
  const size_t block = shape.count * sizeOf(shape.type);
  const schedule::Peers peers = peersOf(shape, agreement.rank);
  const bool sendsBlock =
      shape.collective == Collective::kAllGather || shape.collective == Collective::kGather;
  const bool receivesBlock =
      shape.collective == Collective::kReduceScatter || shape.collective == Collective::kScatter;
  BufferBytes bytes;
  if (schedule::hasInput(shape.collective, peers, agreement.rank))
    bytes.input = sendsBlock ? block : whole;
  if (schedule::hasOutput(shape.collective, peers, agreement.rank))
    bytes.output = receivesBlock ? block : whole;
  return bytes;
}

Result<Plan> Planner::make(const CallShape& shape) {
  TUTTI_TRY_ASSIGN(Choice choice, chooseWith(shape, agreement_, [&](const Algorithm& algorithm) {
                     return programs_->crossings(algorithm, shape, agreement_);
                   }));
  Plan plan = bind(shape, choice.algorithm);
  plan.reason = std::move(choice.reason);
  return plan;
}

namespace {

// On two ranks a sum is the same in either order. One-shot reads whole vectors in one hop; two-shot
// folds halves, and each rank puts its own into both outputs. Of the time of two halves in two hops
// the first takes 0.33 to 0.8 from 16 to 256 KiB, and 0.8 to 1.2 above (buffers that peers map, 2
// CPUs of an Intel Xeon VM, 2026-11-21); as copies they take longer.
std::string_view otherOfTwo(const CallShape& shape, std::string_view own) {
  if (shape.collective != Collective::kAllReduce) return {};
  return own == "oneshot" ? "twoshot" : "oneshot";
}

// What folds in the order of a ring, in one step, and needs a hop or two. The same bits where a
// partial sum that is sent on is not rounded. As copies it is no faster.
std::string_view otherThanRing(const CallShape& shape, std::string_view own) {
  constexpr size_t kLeastExactBytes = 4;  // shorter types are summed as floats
  if (own != "ring") return {};
  const bool isExact = sizeOf(shape.type) >= kLeastExactBytes;
  switch (shape.collective) {
    case Collective::kAllReduce: return isExact ? "twoshot" : "";
    case Collective::kReduceScatter: return isExact ? "direct" : "";
    case Collective::kAllGather: return "direct";
    default: return {};
  }
}

// What is only moved, and longer than a slot: of the time of reads of 64 KiB, those of 512 KiB take
// 0.8 to 0.95 (all-to-all of 256 KiB to 16 MiB, all-gather of 4 and 16 MiB, 2 processes on 2 CPUs
// of an AMD EPYC VM, 2026-11-28), by 4 0.65 to 0.8 (256 KiB to 4 MiB, 2026-11-30). What no cache
// holds is better copied: there another trial is lost time.
bool gainsByLongReads(const CallShape& shape, const Agreement& agreement, const Plan& plan) {
  const bool isMoved =
      shape.collective == Collective::kAllToAll || shape.collective == Collective::kAllGather;
  const schedule::Layout& layout = plan.layout;
  // Beside a ring of many, memory that peers map has another program.
  const bool isFew =
      agreement.rankCount == 2 || (sharesCpusByTwo(agreement) && plan.algorithm != "ring");
  return isFew && isMoved && plan.mayRefer && layout.pieceElements < layout.chunkElements &&
         vectorBytes(shape, agreement.rankCount) <= kKernelLongMaxBytes;
}

}  // namespace

Result<std::optional<Plan>> Planner::makeOther(const CallShape& shape, const Plan& plan) {
  const int32_t rankCount = agreement_.rankCount;
  const bool isForMany =
      agreement_.isCrowded() && !agreement_.readsPeers && rankCount <= kMostRanksMapped;
  std::string_view otherName;
  Way way = Way::kOther;
  if (gainsByLongReads(shape, agreement_, plan)) {
    otherName = plan.algorithm;
    way = Way::kLongReads;
  } else if (rankCount == 2) {
    otherName = otherOfTwo(shape, plan.algorithm);
  } else if (isForMany) {
    otherName = otherThanRing(shape, plan.algorithm);
  }
  // Every rank has a chunk of its own, so that each hears of all others.
  constexpr size_t kMinBytes = 4_KiB;
  const bool isFit = !otherName.empty() && agreement_.isOneHost &&
                     shape.op != ReduceOp::kPreMulSum && vectorBytes(shape, rankCount) >= kMinBytes;
  if (!isFit || !AlgorithmFilter(agreement_.algorithms).allows(shape.collective, otherName)) {
    return std::optional<Plan>();
  }
  Plan other = bind(shape, otherName, way);
  other.reason = "tried beside " + std::string(plan.algorithm) + " where peers read the buffers";
  return std::optional<Plan>(std::move(other));
}

Plan Planner::bind(const CallShape& shape, std::string_view algorithmName, Way way) {
  const Algorithm& algorithm = *schedule::findAlgorithm(shape.collective, algorithmName);
  const size_t elementBytes = sizeOf(shape.type);
  const int32_t chunkCount = algorithm.chunksOf(optionsFor(shape, agreement_));
  const auto chunksPerBlock = static_cast<size_t>(
      chunkCount / schedule::blockCount(shape.collective, agreement_.rankCount));
  const size_t chunkBytes = divideUp(shape.count, chunksPerBlock) * elementBytes;
  const Piecing piecing{.slotBytes = agreement_.geometry.slotBytes,
                        .isCrowded = agreement_.isCrowded(),
                        .isOneHost = agreement_.isOneHost};
  Plan plan;
  const bool isOther = way == Way::kOther;
  const bool readsLong = way == Way::kLongReads;
  // Another one is taken where its steps can refer; that it may not in every call is seen there.
  const bool refers = isOther || isReferable(shape, algorithm);
  const bool isLong = refers && isReadLong(shape, algorithm, agreement_, chunkBytes);
  const bool isRead = refers && agreement_.readsPeers && chunkBytes >= kDirectMinBytes;
  plan.isDirect = readsLong || (!isOther && (isRead || isLong));
  // Among many another one is for memory that is mapped.
  const bool isMappedOnly = isOther && agreement_.rankCount > 2;
  plan.mayRefer = refers && !plan.isDirect && !isMappedOnly && triesReads(shape, agreement_) &&
                  chunkBytes >= readFromBytes(shape, agreement_) &&
                  !isRelayedByCrowd(shape, algorithm, agreement_);
  size_t pieceBytes = pieceBytesFor(chunkBytes, piecing);
  if (plan.isDirect)
    pieceBytes = isLong || readsLong ? kLongReadBytes : directPieceBytes(chunkBytes);
  const bool mayCopy = agreement_.isOneHost && !agreement_.readsPeers && !plan.isDirect;
  if (mayCopy || isOther) pieceBytes = processPieceBytes(chunkBytes, piecing);
  const std::vector<int32_t>& hosts = agreement_.inNetwork.hostStarts;
  if (algorithm.reducesInNetwork() && shape.collective != Collective::kAllReduce && !hosts.empty())
    pieceBytes =
        std::min(pieceBytes, networkPieceBytes(agreement_.geometry.slotBytes, hosts.size()));
  plan.algorithm = algorithm.name;
  plan.program = programs_->get(algorithm, shape, agreement_);
  plan.layout = schedule::makeLayout({.collective = shape.collective,
                                      .rank = agreement_.rank,
                                      .rankCount = agreement_.rankCount,
                                      .chunkCount = chunkCount,
                                      .blockElements = shape.count,
                                      .elementBytes = elementBytes,
                                      .pieceBytes = pieceBytes});
  plan.signature = shapeSignature(shape, algorithm);
  if (algorithm.reducesInNetwork() && agreement_.inNetwork.headCount > 0)
    plan.networkOp = NetworkReduction::operationFor(shape.op);
  return plan;
}

MappedSteps Planner::mappedSteps(const CallShape& shape, const Plan& plan, bool inPlace) const {
  // A pre-multiplied input is nobody's memory.
  if (shape.op == ReduceOp::kPreMulSum && isReduction(shape.collective)) return {};
  if (agreement_.rankCount > kMostRanksMapped) return {};
  const Algorithm& algorithm = *schedule::findAlgorithm(shape.collective, plan.algorithm);
  if (algorithm.reducesInNetwork()) return {};  // the heads' slots are the network's
  const schedule::Schedule all = schedule::makeSchedule(algorithm, optionsFor(shape, agreement_));
  return {.referable = schedule::referableSteps(all, agreement_.rank, inPlace),
          .answered = schedule::answeredSteps(all, agreement_.rank),
          .placements = schedule::placements(all, agreement_.rank, inPlace)};
}

}  // namespace tutti::plan
