#include "kernels/gpu_program.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "base/units.h"

namespace tutti::kernels::cuda {
namespace {

using schedule::Operand;
using schedule::Place;
using schedule::Step;
using wire::GpuMessages;

constexpr int32_t kProgramThreads = 512;
constexpr int32_t kTransferThreads = 256;
constexpr int32_t kTransfersOfMultiprocessor = 4;
// A block of which less is not worth another.
constexpr size_t kLeastBytes = 16_KiB;

// Estimates of a call: a launch, a message that waits for another (ring of 2 ranks, 64 to 256 KB on
// 2 H100: 9.4, 11.2 and 13.0 µs; 2026-11-25), a step, and the wire.
constexpr double kLaunchUs = 5;
constexpr double kStepUs = 1;
constexpr double kBytesAUs = 250e3;
double hopUs(GpuMessages messages) {
  switch (messages) {
    case GpuMessages::kLines: return 2;
    case GpuMessages::kWideLines: return 2.9;
    case GpuMessages::kSlots: break;
  }
  return 3.8;
}
// Of what the wire carries, the payload's part.
double wireFactor(GpuMessages messages) {
  switch (messages) {
    case GpuMessages::kLines: return 2;
    case GpuMessages::kWideLines: return 16.0 / wire::kGpuWideLineWords;
    case GpuMessages::kSlots: break;
  }
  return 1;
}

size_t vectorBytes(const GpuRequest& request) {
  const auto blocks =
      static_cast<size_t>(schedule::blockCount(request.collective, request.rankCount));
  return static_cast<size_t>(request.count) * sizeOf(request.type) * blocks;
}

schedule::Layout layoutOf(const GpuRequest& request, const schedule::Algorithm& algorithm,
                          Rank rank) {
  const schedule::ScheduleOptions options{.rankCount = request.rankCount};
  return schedule::makeLayout({.collective = request.collective,
                               .rank = rank,
                               .rankCount = request.rankCount,
                               .chunkCount = algorithm.chunksOf(options),
                               .blockElements = static_cast<size_t>(request.count),
                               .elementBytes = sizeOf(request.type),
                               .pieceBytes = wire::gpuProgramSlotBytes(request.rankCount)});
}

// By what the first rank does, as the root where there is one.
bool foldsOnce(const schedule::Algorithm& algorithm, int32_t rankCount) {
  const schedule::Program program =
      schedule::buildProgram(algorithm, {.rankCount = rankCount}, Rank{0});
  return std::ranges::all_of(program.steps, [&](const Step& step) {
    return step.fold != schedule::Fold::kReduce || step.sourceCount == rankCount;
  });
}

// Whether a block's part of a chunk goes as one message; through slots it may be any number.
bool fits(GpuMessages messages, const GpuRequest& request, size_t blockBytes) {
  if (messages == GpuMessages::kSlots) return true;
  if (messages == GpuMessages::kWideLines && !request.keepsLines) return false;
  return blockBytes <= wire::gpuMessageBytes(messages, request.rankCount);
}

// At least so many, of which each has something to do.
size_t askedBlocks(const GpuRequest& request, size_t bytes) {
  return std::min(static_cast<size_t>(std::max(request.minBlocks, 1)),
                  divideUp(bytes, wire::kGpuProgramLinePayload));
}

void addWays(const GpuRequest& request, const schedule::Algorithm& algorithm,
             std::vector<GpuProgramWay>& ways) {
  const schedule::Layout layout = layoutOf(request, algorithm, Rank{0});
  const size_t bytes = layout.chunkElements * sizeOf(request.type);
  const int32_t most = std::clamp(std::min(residentBlocks(request, 1), request.maxBlocks), 1,
                                  wire::gpuProgramBlocks(request.rankCount));
  const auto blocksOf = [&](size_t least) {
    const size_t wanted = std::max(divideUp(bytes, least), askedBlocks(request, bytes));
    return static_cast<int32_t>(std::clamp<size_t>(wanted, 1, static_cast<size_t>(most)));
  };
  const schedule::Cost cost = algorithm.cost(request.rankCount);
  const double factor = std::max(schedule::sentFactor(algorithm, request.rankCount),
                                 schedule::receivedFactor(algorithm, request.rankCount));
  const double wireUs = factor * static_cast<double>(vectorBytes(request)) / kBytesAUs;
  const bool isFoldedOnce = foldsOnce(algorithm, request.rankCount);
  for (const auto messages : {GpuMessages::kLines, GpuMessages::kWideLines, GpuMessages::kSlots}) {
    if (!fits(messages, request, divideUp(bytes, static_cast<size_t>(most)))) continue;
    const bool isSlots = messages == GpuMessages::kSlots;
    ways.push_back({.algorithm = &algorithm,
                    .messages = messages,
                    .blocks = blocksOf(isSlots ? kLeastBytes : wire::kGpuProgramLinePayload),
                    .us = kLaunchUs + hopUs(messages) * cost.hops + kStepUs * cost.steps +
                          wireFactor(messages) * wireUs,
                    .foldsOnce = isFoldedOnce});
  }
}

std::string_view nameOf(GpuMessages messages) {
  switch (messages) {
    case GpuMessages::kLines: return "lines";
    case GpuMessages::kWideLines: return "wide lines";
    case GpuMessages::kSlots: break;
  }
  return "slots";
}

uint16_t wordOf(const Operand& operand, const std::vector<Rank>& peers) {
  switch (operand.place) {
    case Place::kInput: return wire::kGpuProgramInput | static_cast<uint16_t>(operand.index);
    case Place::kOutput: return wire::kGpuProgramOutput | static_cast<uint16_t>(operand.index);
    case Place::kLink:
      return wire::kGpuProgramLink |
             static_cast<uint16_t>(index(peers[static_cast<size_t>(operand.index)]));
  }
  return 0;
}

// Where every rank's contribution comes by itself, they are folded in rank order: so the result
// does not depend on the algorithm.
void sortByRank(std::span<uint16_t> sources, int32_t rankCount, Rank self) {
  const auto originOf = [&](uint16_t word) {
    const bool isLink = (word & wire::kGpuProgramPlace) == wire::kGpuProgramLink;
    return isLink ? word & ~wire::kGpuProgramPlace : index(self);
  };
  const auto isPartial = [](uint16_t word) {
    return (word & wire::kGpuProgramPlace) == wire::kGpuProgramOutput;
  };
  if (sources.size() != static_cast<size_t>(rankCount)) return;
  if (std::ranges::any_of(sources, isPartial)) return;
  std::ranges::sort(sources, {}, originOf);
}

// Words of a program, a step after the other.
class Writer {
 public:
  Writer(const schedule::Program& program, const GpuProgramPlace& place, int32_t rankCount)
      : program_(program), place_(place), rankCount_(rankCount) {}

  size_t write(std::span<uint16_t> words) {
    for (const Step& step : program_.steps) {
      const size_t size = 2 + size_t{step.sourceCount} + step.destinationCount;
      if (used_ + size > words.size()) return 0;
      writeStep(step, words.subspan(used_, size));
      used_ += size;
    }
    return used_;
  }

 private:
  void writeStep(const Step& step, std::span<uint16_t> words) const {
    words[0] = static_cast<uint16_t>(step.chunk);
    words[1] = static_cast<uint16_t>(step.sourceCount | step.destinationCount << 8 |
                                     (step.post ? wire::kGpuProgramPost : 0));
    size_t at = 2;
    for (const Operand& source : program_.sources(step))
      words[at++] = wordOf(source, program_.receivesFrom);
    for (const Operand& destination : program_.destinations(step))
      words[at++] = wordOf(destination, program_.sendsTo);
    sortByRank(words.subspan(2, step.sourceCount), rankCount_, place_.rank);
  }

  const schedule::Program& program_;
  const GpuProgramPlace& place_;
  const int32_t rankCount_;
  size_t used_ = 0;
};

}  // namespace

int32_t mostSharers(int32_t rankCount, int32_t multiprocessors) {
  const int32_t waiting = waitingMultiprocessors(multiprocessors);
  const int32_t transfers = transfersAtOnce(rankCount);
  if (rankCount > wire::kGpuMaxRanks) return kTransfersOfMultiprocessor * waiting / transfers;
  return std::min({kMovingBlocks * waiting / transfers,
                   kFoldingBlocks * waiting / wire::kGpuLaneParts, waiting});
}

std::vector<GpuProgramWay> programWays(const GpuRequest& request) {
  std::vector<GpuProgramWay> ways;
  if (request.rankCount > wire::kGpuProgramRanks || isPointToPoint(request.collective)) return ways;
  for (const schedule::Algorithm& algorithm : schedule::algorithms(request.collective)) {
    if (algorithm.isOfItsOwn(request.rankCount, 1)) addWays(request, algorithm, ways);
  }
  std::ranges::stable_sort(
      ways, {}, [](const GpuProgramWay& way) { return std::pair(!way.foldsOnce, way.us); });
  return ways;
}

void fillProgram(const GpuRequest& request, const GpuProgramWay& way, const GpuProgramPlace& place,
                 wire::GpuProgramLaunch& launch) {
  const schedule::Program program = schedule::buildProgram(
      *way.algorithm, {.rankCount = request.rankCount, .root = place.root}, place.rank);
  const schedule::Layout layout = layoutOf(request, *way.algorithm, place.rank);
  const auto elementBytes = static_cast<uint32_t>(sizeOf(request.type));
  const wire::GpuProgramCut cut =
      wire::cutForGpu(layout.chunkElements, elementBytes, way.blocks,
                      wire::gpuMessageBytes(way.messages, request.rankCount));
  wire::GpuProgramCall& call = launch.call;
  call = {};
  call.blockElements = layout.blockElements;
  call.chunkElements = layout.chunkElements;
  call.sliceElements = cut.sliceElements;
  call.pieceElements = cut.pieceElements;
  call.pieceCount = cut.pieceCount;
  call.chunksPerBlock = layout.chunksPerBlock;
  call.firstInputBlock = layout.firstInputBlock;
  call.firstOutputBlock = layout.firstOutputBlock;
  call.elementBytes = static_cast<uint16_t>(elementBytes);
  call.collective = request.collective;
  call.type = request.type;
  call.op = request.op;
  call.messages = way.messages;
  call.wordCount = static_cast<uint32_t>(
      Writer(program, place, request.rankCount).write(std::span(launch.words)));
}

GpuChoice programKernel(const GpuRequest& request, const GpuProgramWay& way) {
  const bool folds = isReduction(request.collective);
  return {.algorithm = way.algorithm->name,
          .protocol = nameOf(way.messages),
          .kernel = folds ? "tuttiFoldProgram" : "tuttiMoveProgram",
          .image = kProgramImages + (folds ? foldImage(request.type) : kMoveImage),
          .threads = kProgramThreads,
          .blocks = way.blocks,
          .chunkBytes = 0,
          .shape = wire::GpuAlgorithm::kDirect,
          .startsEarly = false};
}

int32_t programTransferBlocks(const GpuRequest& request, uint64_t bytes) {
  const int32_t resident = residentBlocks(request, kTransfersOfMultiprocessor);
  const int32_t most =
      std::clamp(std::min(resident / transfersAtOnce(request.rankCount), request.maxBlocks), 1,
                 wire::gpuProgramBlocks(request.rankCount));
  const size_t wanted = std::max(divideUp(bytes, kLeastBytes), askedBlocks(request, bytes));
  return static_cast<int32_t>(std::clamp<size_t>(wanted, 1, static_cast<size_t>(most)));
}

GpuChoice programTransferKernel() {
  return {.algorithm = "direct",
          .protocol = "slots",
          .kernel = "tuttiProgramTransfers",
          .image = kProgramImages + kMoveImage,
          .threads = kTransferThreads,
          .blocks = 1,
          .chunkBytes = 0,
          .shape = wire::GpuAlgorithm::kDirect,
          .startsEarly = false};
}

}  // namespace tutti::kernels::cuda
