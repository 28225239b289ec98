#include "plan/plan.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "base/fnv.h"
#include "base/units.h"
#include "plan/algorithm_filter.h"
#include "plan/choice_table.h"
#include "plan/cost_model.h"
#include "schedule/catalog.h"
#include "schedule/references.h"

namespace tutti::plan {
namespace {

using schedule::Algorithm;

// Pieces of a chunk move through a chain of ranks like trucks on a road: at least this many keep
// every rank busy, unless they would get shorter than what one message costs.
constexpr size_t kWantedPieces = 8;
constexpr size_t kMinPieceBytes = 8_KiB;

// From kDirectMinBytes on, reading a message from the sender's buffer beats a copy into a slot and
// out of it; pieces are as long as keeps a folded piece in the caches until its readers come.
// Threads of one process, 2 and 4 ranks on 2 CPUs of an EPYC VM, 2026-11-20: at 16 KiB references
// take 1.0-1.6 times as long, at 128 KiB 0.4-0.9, at 8 MiB 0.5-0.9.
constexpr size_t kDirectMaxPieceBytes = 512_KiB;

bool isReferable(const CallShape& shape, const Algorithm& algorithm, size_t chunkBytes) {
  return chunkBytes >= kDirectMinBytes && shape.op != ReduceOp::kPreMulSum &&
         schedule::isReferable(algorithm);
}

// Where ranks share CPUs, pieces would overlap with nothing, and each could cost a turn of the
// scheduler a rank.
size_t pieceBytesFor(size_t chunkBytes, const Agreement& agreement) {
  if (agreement.isCrowded) return agreement.geometry.slotBytes;
  const size_t wanted = roundUp(divideUp(chunkBytes, kWantedPieces), wire::kCacheLineBytes);
  return std::clamp<size_t>(wanted, std::min<size_t>(kMinPieceBytes, agreement.geometry.slotBytes),
                            agreement.geometry.slotBytes);
}

size_t directPieceBytes(size_t chunkBytes) {
  const size_t wanted = roundUp(divideUp(chunkBytes, kWantedPieces), wire::kCacheLineBytes);
  return std::clamp(wanted, kDirectMinBytes, kDirectMaxPieceBytes);
}

// Short enough for a slot, since some senders copy; long enough that a system call's 0.5 us a piece
// do not show.
size_t kernelPieceBytes(size_t chunkBytes, const Agreement& agreement) {
  return std::min<size_t>(std::max(pieceBytesFor(chunkBytes, agreement), kDirectMinBytes),
                          agreement.geometry.slotBytes);
}

schedule::ScheduleOptions optionsFor(const CallShape& shape, const Agreement& agreement) {
  schedule::ScheduleOptions options{.rankCount = agreement.rankCount, .order = agreement.order};
  switch (shape.collective) {
    case Collective::kSend:
      options.root = shape.peer;
      options.sender = agreement.rank;
      break;
    case Collective::kRecv:
      options.root = agreement.rank;
      options.sender = shape.peer;
      break;
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kGather:
    case Collective::kScatter: options.root = shape.peer; break;
    case Collective::kAllReduce:
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll: break;
  }
  return options;
}

// What both sides of a link must agree on. A send and its receive share one value; the algorithm is
// part of it because two ranks with different ones would misread each other's messages.
uint32_t shapeSignature(const CallShape& shape, const Algorithm& algorithm) {
  Fnv hash;
  const auto add = [&hash](uint64_t value) { hash.add(value); };
  if (shape.collective == Collective::kSend || shape.collective == Collective::kRecv) {
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

// By the table's row for these ranks and bytes; where NCCL_ALGO forbids that one, by the nearest
// row it allows, those for longer vectors first.
Choice chooseByTable(const CallShape& shape, int32_t rankCount,
                     std::span<const std::string_view> allowed) {
  const size_t bytes = vectorBytes(shape, rankCount);
  const auto rows = choiceRows(shape.collective, rankCount);
  const auto isAllowed = [&](const ChoiceRow& row) {
    return std::ranges::find(allowed, row.algorithm) != allowed.end();
  };
  const auto fits = [&](const ChoiceRow& row) { return bytes <= row.maxBytes; };
  const auto wanted = std::ranges::find_if(rows, fits);
  if (isAllowed(*wanted)) {
    std::string reason =
        fmt::format("{} bytes on {} ranks: {}", bytes, rankCount, wanted->algorithm);
    if (wanted != rows.begin()) reason += fmt::format(" above {}", std::prev(wanted)->maxBytes);
    if (wanted->maxBytes != kAnyBytes) reason += fmt::format(" up to {}", wanted->maxBytes);
    return {wanted->algorithm, std::move(reason)};
  }
  const std::string reason = fmt::format("NCCL_ALGO forbids {}", wanted->algorithm);
  if (const auto longer = std::find_if(wanted, rows.end(), isAllowed); longer != rows.end()) {
    return {longer->algorithm, reason};
  }
  const std::span<const ChoiceRow> shorter(rows.begin(), wanted);
  for (auto row = shorter.rbegin(); row != shorter.rend(); ++row) {
    if (isAllowed(*row)) return {row->algorithm, reason};
  }
  return {allowed[0], reason};
}

// The cheapest by the prices, and the one that comes next.
Choice chooseByPrices(const CallShape& shape, const Agreement& agreement, const CostPrices& prices,
                      std::span<const std::string_view> allowed) {
  const CostedCall call{.rankCount = agreement.rankCount,
                        .cpuCount = agreement.tuning->cpuCount,
                        .bytes = vectorBytes(shape, agreement.rankCount),
                        .readsPeers = agreement.readsPeers};
  std::vector<std::pair<double, std::string_view>> costs;
  for (const std::string_view each : allowed) {
    const Algorithm& algorithm = *schedule::findAlgorithm(shape.collective, each);
    costs.emplace_back(predictUs(prices, countTerms(algorithm, call)), each);
  }
  std::ranges::stable_sort(costs, {}, [](const auto& each) { return each.first; });
  return {
      costs[0].second,
      fmt::format("{} bytes on {} ranks: {} {:.2f} us, {} {:.2f} us by the machine's prices of {}",
                  call.bytes, call.rankCount, costs[0].second, costs[0].first, costs[1].second,
                  costs[1].first, agreement.tuning->date)};
}

// Eight slots keep a sender busy while the receiver folds. Half a mebibyte, so slots of 64 KiB,
// stays inside a core's L2 cache.
constexpr uint32_t kSlotCount = 8;

}  // namespace

wire::LinkGeometry linkGeometry(size_t bufferBytes) {
  const size_t slotBytes =
      std::clamp<size_t>(roundUp(bufferBytes / kSlotCount, wire::kCacheLineBytes),
                         wire::kCacheLineBytes, wire::kMaxSlotBytes);
  return {.slotCount = kSlotCount, .slotBytes = static_cast<uint32_t>(slotBytes)};
}

class ProgramCache {
 public:
  std::shared_ptr<const schedule::Program> get(const Algorithm& algorithm, const CallShape& shape,
                                               const Agreement& agreement) {
    const int32_t peer =
        hasRoot(shape.collective) || shape.collective >= Collective::kSend ? index(shape.peer) : 0;
    // Shared by the plans that run it; a plan may outlive its place in this table.
    auto& program = programs_[{&algorithm, static_cast<int32_t>(shape.collective), peer}];
    if (program == nullptr) {
      program = std::make_shared<const schedule::Program>(
          schedule::buildProgram(algorithm, optionsFor(shape, agreement), agreement.rank));
    }
    return program;
  }

 private:
  std::map<std::tuple<const Algorithm*, int32_t, int32_t>, std::shared_ptr<const schedule::Program>>
      programs_;
};

Planner::Planner(Agreement agreement)
    : agreement_(std::move(agreement)), programs_(std::make_unique<ProgramCache>()) {}
Planner::~Planner() = default;

size_t vectorBytes(const CallShape& shape, int32_t rankCount) {
  return shape.count * sizeOf(shape.type) *
         static_cast<size_t>(schedule::blockCount(shape.collective, rankCount));
}

BufferBytes bufferBytes(const CallShape& shape, const Agreement& agreement) {
  const size_t whole = vectorBytes(shape, agreement.rankCount);
  const size_t block = shape.count * sizeOf(shape.type);
  const schedule::ScheduleOptions options = optionsFor(shape, agreement);
  const schedule::Peers peers{.root = options.root, .sender = options.sender};
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

Result<Choice> choose(const CallShape& shape, const Agreement& agreement) {
  const auto all = schedule::algorithms(shape.collective);
  if (all.size() == 1) return Choice{all[0].name, "the only algorithm"};
  const AlgorithmFilter filter(agreement.algorithms);
  std::vector<std::string_view> allowed;
  for (const Algorithm& algorithm : all) {
    const uint32_t capacity = wire::capacity(agreement.geometry.slotCount);
    if (algorithm.minSlotCount > static_cast<int32_t>(capacity)) continue;
    if (filter.allows(shape.collective, algorithm.name)) allowed.push_back(algorithm.name);
  }
  if (allowed.empty()) {
    return invalidUsage("NCCL_ALGO={} leaves no algorithm for {}; there are: {}",
                        agreement.algorithms, name(shape.collective), listNames(all));
  }
  if (allowed.size() == 1) return Choice{allowed[0], "the only one NCCL_ALGO allows"};
  if (agreement.tuning != nullptr) {
    const CostPrices* prices = agreement.tuning->pricesOf(shape.collective, agreement.readsPeers);
    if (prices != nullptr) return chooseByPrices(shape, agreement, *prices, allowed);
  }
  return chooseByTable(shape, agreement.rankCount, allowed);
}

Result<Plan> Planner::make(const CallShape& shape) {
  TUTTI_TRY_ASSIGN(Choice choice, choose(shape, agreement_));
  const Algorithm& algorithm = *schedule::findAlgorithm(shape.collective, choice.algorithm);
  const size_t elementBytes = sizeOf(shape.type);
  const int32_t chunkCount = algorithm.chunkCount(agreement_.rankCount);
  const auto chunksPerBlock = static_cast<size_t>(
      chunkCount / schedule::blockCount(shape.collective, agreement_.rankCount));
  const size_t chunkBytes = divideUp(shape.count, chunksPerBlock) * elementBytes;
  Plan plan;
  const bool isLong = isReferable(shape, algorithm, chunkBytes);
  plan.isDirect = isLong && agreement_.readsPeers;
  plan.mayRefer = isLong && agreement_.readsByKernel;
  size_t pieceBytes = pieceBytesFor(chunkBytes, agreement_);
  if (plan.isDirect) pieceBytes = directPieceBytes(chunkBytes);
  if (plan.mayRefer) pieceBytes = kernelPieceBytes(chunkBytes, agreement_);
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
  plan.reason = std::move(choice.reason);
  return plan;
}

std::vector<uint8_t> Planner::referableSteps(const CallShape& shape, const Plan& plan,
                                             bool inPlace) const {
  // A pre-multiplied input is nobody's memory. Beyond so many ranks the proof would take long, and
  // not all are of one host.
  constexpr int32_t kMaxRanks = 64;
  if (shape.op == ReduceOp::kPreMulSum && isReduction(shape.collective)) return {};
  if (agreement_.rankCount > kMaxRanks) return {};
  const Algorithm& algorithm = *schedule::findAlgorithm(shape.collective, plan.algorithm);
  return schedule::referableSteps(schedule::makeSchedule(algorithm, optionsFor(shape, agreement_)),
                                  agreement_.rank, inPlace);
}

}  // namespace tutti::plan
