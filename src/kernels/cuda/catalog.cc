#include "kernels/cuda/catalog.h"

#include <algorithm>
#include <array>

#include "base/units.h"
#include "kernels/cuda/choosing.h"
#include "kernels/cuda/kernel_names.h"

namespace tutti::kernels::cuda {
namespace {

using enum Collective;
using wire::GpuAlgorithm;

constexpr int32_t kPumpThreads = 256;  // of a part by threads (kernels/cuda/pump.cuh)

// Of more than two ranks: in two stages each rank sends 2 / n of the bytes, and they take two
// trips.
bool hasStages(const GpuRequest& request) {
  return request.rankCount > 2 &&
         (request.collective == kAllReduce || request.collective == kBroadcast ||
          request.collective == kReduce);
}

// Up to here one stage is faster: 2 (n - 1) S bytes against 4 (n - 1) / n S and a trip. 4 × H200,
// in a graph: all-reduce of 256 KB 11.7 µs, in two stages 13.2 (2026-11-22); of more ranks
// predicted.
size_t stageLimit(const GpuRequest& request) {
  if (request.stageBytes >= 0) return static_cast<size_t>(request.stageBytes);
  if (request.rankCount <= 4) return 256_KiB;
  return request.collective == kAllReduce ? 64_KiB : 128_KiB;
}

// Up to here lines are faster: a line doubles the bytes on the wire, a slot costs a fence, a second
// trip and more barriers (together some 4 µs). 4 × H200 in a graph, lines against slots: all-reduce
// of 512 KB 15.5, 17.8 µs, of 1 MB 20.3, 19.3, reduce 14.8, 16.5 and 23.7, 19.6,
// broadcast 12.2, 12.0 and 16.8, 13.4; reduce-scatter of 512 KB 10.1, 11.0, of 1 MB 12.7, 12.1
// (2026-11-22); more ranks are predicted.
size_t lineLimit(const GpuRequest& request) {
  if (request.lineBytes >= 0) return static_cast<size_t>(request.lineBytes);
  if (hasStages(request) || request.rankCount <= 2) return 512_KiB;
  return request.rankCount <= 4 ? 128_KiB : 64_KiB;
}

// The longest message of a block that has so many bytes: whole passes of all its movers
// (kernels/cuda/pump.cuh). One message instead of two, where that is all. Eager µs on 2 × H200 with
// 8, 12 and 16 passes (2026-11-22): all-reduce of 4 MB 26.6, 25.0, 25.3, of 16 MB 66.7, 66.3, 62.1,
// of 1 GB 3264, 3145, 3052; reduce of 1 GB 3052, 3014, 2962; reduce-scatter of 16
// MB 37.7, 39.7, 38.7, of 64 MB 114.5, 116.1, 113.9; but broadcast of 64 MB 199.9, 210.5, 205.6, of
// 1 GB 3043, 3191, 3122.
size_t longestMessage(const GpuRequest& request, size_t blockBytes) {
  constexpr size_t kPass = 192 * 16;
  const size_t blockPasses = divideUp(blockBytes, kPass);
  size_t passes = 9;
  if (blockPasses <= 14) passes = 14;
  if (request.rankCount == 2 && blockPasses > 14) {
    const bool isLong = request.collective == kReduceScatter ? blockPasses > 56
                        : request.collective == kBroadcast   ? blockPasses <= 93
                                                             : folds(request.collective);
    if (isLong) passes = 18;
  }
  const size_t most = std::min(wire::gpuSlotBytes(request.rankCount), passes * kPass);
  return most / kPass * kPass;
}

// Messages that one call makes of the vector: an owner each.
int32_t partCount(const GpuRequest& request, GpuAlgorithm shape) {
  if (shape != GpuAlgorithm::kTwoShot) return 1;
  return request.collective == kAllReduce ? request.rankCount : request.rankCount - 1;
}

void shapeLines(const GpuRequest& request, GpuChoice& choice) {
  const auto parts = static_cast<size_t>(partCount(request, choice.shape));
  const size_t lines = divideUp(divideUp(messageBytes(request), parts), wire::kGpuLinePayload);
  const size_t most = wire::gpuLinesPerPeer(request.rankCount);
  const size_t wanted = divideUp(lines, std::min(most, size_t{kCollectiveThreads}));
  choice.blocks = blocksFor(request, wanted, divideUp(lines, 2), blockLimit(request));
  const size_t perBlock = roundUp(divideUp(lines, static_cast<size_t>(choice.blocks)), 2);
  choice.chunkBytes =
      static_cast<uint32_t>(std::clamp(perBlock, size_t{2}, most) * wire::kGpuLinePayload);
}

// Whether all lines of the call have a place.
bool fits(const GpuRequest& request, Way way) {
  const auto parts = static_cast<size_t>(partCount(request, shapeOf(request, way)));
  const auto blocks = static_cast<size_t>(blockLimit(request));
  return messageBytes(request) <=
         parts * blocks * wire::gpuLinesPerPeer(request.rankCount) * wire::kGpuLinePayload;
}

// Lengths for which wide lines are faster: longer than lines are, shorter than slots. Graph µs on 2
// and 4 × H200 (2026-11-27), lines or slots and wide lines: 2 ranks, all-reduce of 256 KB 5.8 and
// 5.2, of 4 MB 22.2 and 19.8, of 16 MB 58 and 65, all-gather of 16 MB 36 and 31, broadcast of 1 MB
// 8.7 and 7.3, of 4 MB 13.2 and 16.6; 4 ranks, all-reduce of 64 KB 6.4 and 7.3, of 256 KB 11.0 and
// 8.4, of 1 MB 20 and 11.3, of 4 MB 35 and 31, of 16 MB 91 and 98, reduce of 256 KB 5.2 and 8.2, of
// 1 MB 19.7 and 10.6, of 16 MB 78 and 68, broadcast of 256 KB 7.4 and 6.4, of 4 MB 22.6 and 18.4,
// of 16 MB 61 and 68, all-gather of 4 MB 20.7 and 16.9.
struct WideLengths {
  size_t above;
  size_t most;
};
WideLengths wideLengths(const GpuRequest& request) {
  const bool isPair = request.rankCount == 2;
  switch (request.collective) {
    case kAllReduce: return isPair ? WideLengths{128_KiB, 4_MiB} : WideLengths{64_KiB, 8_MiB};
    case kBroadcast: return isPair ? WideLengths{128_KiB, 1_MiB} : WideLengths{128_KiB, 6_MiB};
    case kReduce: return isPair ? WideLengths{256_KiB, 1_MiB} : WideLengths{256_KiB, 24_MiB};
    case kReduceScatter: return isPair ? WideLengths{64_KiB, 3_MiB} : WideLengths{16_KiB, 2_MiB};
    case kAllGather:
    case kAllToAll: return isPair ? WideLengths{64_KiB, 8_MiB} : WideLengths{16_KiB, 2_MiB};
    case kGather:
    case kScatter:
    case kSend:
    case kRecv: return {0, 0};
  }
  return {0, 0};
}

// Also where a request says up to which length.
bool goesWide(const GpuRequest& request) {
  if (!request.keepsLines || wideKernel(false, request.rankCount) == nullptr) return false;
  const size_t bytes = messageBytes(request);
  WideLengths lengths = wideLengths(request);
  if (request.wideBytes >= 0 && lengths.most != 0) {
    constexpr size_t kMost = 1_GiB;  // whose rows GpuCall::chunkBytes can hold
    lengths = {0, std::min(static_cast<size_t>(request.wideBytes), kMost)};
  }
  return bytes > lengths.above && bytes <= lengths.most;
}

// Rows are dealt to the warps of all blocks in turn.
void shapeWide(const GpuRequest& request, GpuChoice& choice) {
  constexpr size_t kLeastRows = 8;  // of a block: fewer are not worth another
  const auto parts = static_cast<size_t>(partCount(request, choice.shape));
  const size_t rows = divideUp(divideUp(messageBytes(request), parts), wire::kGpuRowPayload);
  choice.blocks = blocksFor(request, divideUp(rows, kLeastRows), rows, blockLimit(request));
  choice.chunkBytes = static_cast<uint32_t>(rows * wire::kGpuRowPayload);
}

// Blocks that so many lanes share, with the parts of each (kernels/cuda/apart.cuh).
struct ApartShape {
  int32_t lanes;
  int32_t blocks;
  int32_t threads;  // of a block
};
// `isBulk`: of the choice; `goesByBulk`: the launch does.
ApartShape apartShape(bool folds, bool isBulk, bool goesByBulk) {
  const int32_t byThreads = isBulk ? wire::kGpuFoldLanes : 1;
  return {.lanes = goesByBulk ? wire::kGpuBulkLanes : byThreads,
          .blocks = wire::kGpuLaneParts - 1 + wire::gpuWorkerBlocks(folds, goesByBulk),
          .threads = isBulk ? kCollectiveThreads : kPumpThreads};
}

// Lanes of a call through slots: of two ranks each is a block. Where ranks share a GPU their blocks
// have to fit by either way.
int32_t laneLimit(const GpuRequest& request) {
  if (request.rankCount <= 2) return blockLimit(request);
  const bool isBulk = goesInBulk(request);
  int32_t blocks = residentBlocks(request, isBulk ? 1 : kFoldingBlocks);
  if (request.maxBlocks < wire::kGpuMaxBlocks) blocks = std::min(blocks, request.maxBlocks);
  if (isBulk && request.savesBlocks) blocks = std::min(blocks, kSavingBlocks);
  const auto lanesBy = [&](bool goesByBulk) {
    const ApartShape shape = apartShape(folds(request.collective), isBulk, goesByBulk);
    return std::clamp(blocks / shape.blocks * shape.lanes, 1, wire::kGpuMaxBlocks);
  };
  return request.ranksPerDevice > 1 ? std::min(lanesBy(isBulk), lanesBy(false)) : lanesBy(isBulk);
}

void shapeSlots(const GpuRequest& request, GpuChoice& choice) {
  const auto parts = static_cast<size_t>(partCount(request, choice.shape));
  const size_t part = divideUp(messageBytes(request), parts);
  constexpr size_t kLeast = 4_KiB;  // of a lane: less is not worth another
  GpuRequest lanes = request;
  if (choice.isApart && !choice.isBulk)
    lanes.minBlocks = (request.minBlocks + wire::kGpuLaneParts - 1) / wire::kGpuLaneParts;
  choice.blocks = blocksFor(lanes, divideUp(part, kLeast), divideUp(part, 16), laneLimit(request));
  const size_t perBlock = roundUp(divideUp(part, static_cast<size_t>(choice.blocks)), 16);
  choice.chunkBytes =
      static_cast<uint32_t>(std::clamp(perBlock, size_t{16}, longestMessage(request, perBlock)));
}

}  // namespace

int32_t blocksFor(const GpuRequest& request, uint64_t wanted, uint64_t units, int32_t most) {
  const auto limit = static_cast<uint64_t>(most);
  const uint64_t asked =
      std::min({static_cast<uint64_t>(std::max(request.minBlocks, 1)), units, limit});
  const uint64_t blocks = asked <= wanted ? std::clamp<uint64_t>(wanted, 1, limit)
                                          : divideUp(units, divideUp(units, asked));
  return static_cast<int32_t>(blocks);
}

GpuAlgorithm shapeOf(const GpuRequest& request, Way way) {
  const bool one = request.rankCount <= 2 || way == Way::kLines;
  switch (request.collective) {
    case kAllReduce: return one ? GpuAlgorithm::kOneShot : GpuAlgorithm::kTwoShot;
    case kBroadcast:
    case kReduce: return one ? GpuAlgorithm::kDirect : GpuAlgorithm::kTwoShot;
    case kAllGather:
    case kReduceScatter:
    case kAllToAll:
    case kGather:
    case kScatter:
    case kSend:
    case kRecv: return GpuAlgorithm::kDirect;
  }
  return GpuAlgorithm::kDirect;
}

std::string_view scheduleName(Collective collective, GpuAlgorithm shape) {
  if (collective == kAllToAll) return "pairwise";
  switch (shape) {
    case GpuAlgorithm::kDirect: return "direct";
    case GpuAlgorithm::kOneShot: return "oneshot";
    case GpuAlgorithm::kTwoShot: return "twoshot";
  }
  return "direct";
}

Way wayOf(const GpuRequest& request) {
  const size_t bytes = messageBytes(request);
  if (request.rankCount <= 1) return Way::kSlots;
  if (goesWide(request)) return Way::kWide;
  if (bytes > lineLimit(request)) return Way::kSlots;
  const bool isStaged = hasStages(request);
  if ((!isStaged || bytes <= stageLimit(request)) && fits(request, Way::kLines)) return Way::kLines;
  return isStaged && fits(request, Way::kStages) ? Way::kStages : Way::kSlots;
}

// Long calls of more than two ranks take some 192 blocks of threads. Where fewer are asked for copy
// engines do as much in a third as many. Eager µs of 64 MB on 4 × H200 (2026-11-27), NCCL in 24
// blocks, by threads in 192, by engines of 64 lanes, of 32: all-reduce 328, 315, 333 in 64, 337 in
// 32; all-gather 192, 166, 177 in 32, 228 in 16; reduce-scatter 188, 166, 177 in 48, 213 in 24;
// broadcast 223, 210, 227 in 48, 404 in 24. By threads in 72 all-gather 212, broadcast 269.
//
// Training steps of 840 million parameters beside them: DDP 97 ms with NCCL, 101 by threads, 97 by
// engines in 32 blocks.
bool goesInBulk(const GpuRequest& request) {
  return request.hasBulk && request.rankCount > 2 &&
         (request.savesBlocks || request.maxBlocks < wire::kGpuMaxBlocks);
}

std::optional<GpuChoice> choose(const GpuRequest& request) {
  if (request.rankCount < 1 || request.rankCount > wire::kGpuMaxRanks) return std::nullopt;
  if (request.collective == kSend || request.collective == kRecv) return std::nullopt;
  GpuChoice choice{};
  const Way way = wayOf(request);
  choice.shape = shapeOf(request, way);
  choice.algorithm = scheduleName(request.collective, choice.shape);
  choice.protocol = way == Way::kSlots ? "slots" : "lines";
  choice.threads = kCollectiveThreads;
  const bool fold = folds(request.collective);
  choice.image = fold ? foldImage(request.type) : kMoveImage;
  if (way == Way::kSlots) {
    choice.isApart = request.rankCount > 2;
    choice.isBulk = goesInBulk(request);
    if (choice.isApart && !choice.isBulk) choice.threads = kPumpThreads;
    choice.kernel = slotKernel(fold, request.rankCount);
    shapeSlots(request, choice);
    return choice;
  }
  if (way == Way::kWide) {
    choice.kernel = wideKernel(fold, request.rankCount);
    choice.protocol = "wide lines";
    shapeWide(request, choice);
    choice.startsEarly = startsEarly(choice.blocks, request.ranksPerDevice);
    return choice;
  }
  choice.kernel = way == Way::kLines ? lineKernel(fold, request.rankCount)
                                     : stageKernel(fold, request.rankCount);
  shapeLines(request, choice);
  choice.startsEarly = startsEarly(choice.blocks, request.ranksPerDevice);
  return choice;
}

GpuGrid gridOf(const GpuChoice& choice, int32_t blocks, int32_t rankCount, bool isBulk) {
  if (!choice.isApart) return {.blocks = blocks, .threads = choice.threads, .sharedBytes = 0};
  const ApartShape shape = apartShape(choice.image != kMoveImage, choice.isBulk, isBulk);
  return {.blocks = (blocks + shape.lanes - 1) / shape.lanes * shape.blocks,
          .threads = shape.threads,
          .sharedBytes = isBulk ? wire::gpuBulkBytes(rankCount) : 0};
}

bool mayGoByBulk(const GpuRequest& request, const void* input, const void* output) {
  const auto isAligned = [](const void* at) { return reinterpret_cast<uintptr_t>(at) % 16 == 0; };
  const bool hasBlocks = request.collective != kAllReduce && request.collective != kReduce &&
                         request.collective != kBroadcast;
  return request.hasBulk && request.op != ReduceOp::kPreMulSum && isAligned(input) &&
         isAligned(output) && (!hasBlocks || messageBytes(request) % 16 == 0);
}

int32_t blocksBeside(const GpuChoice& choice, const GpuRequest& request) {
  return choice.protocol == "lines" ? std::min(kEarlyBlocks, blockLimit(request)) : 0;
}

bool startsEarly(int32_t blocks, int32_t ranksPerDevice) {
  return ranksPerDevice == 1 && blocks <= kEarlyBlocks;
}

// 4 × H100, µs so and through slots (2026-11-27): all-gather of 16 MB 47 (56), of 64 MB 159 (165),
// of 1 GB 2384 (2383), all-to-all 48 (55), 163 (166), 2368 (2413); but all-reduce of 64 MB 325
// (313), of 1 GB 4840 (4639), reduce 240 (236), 3329 (3243), reduce-scatter alike. 4 × H200
// (2026-11-22): all-to-all of 1 GB 2555 (2463), a broadcast in two stages 3263 (3214), of 4 MB 33
// (25), among two ranks of 1 MB 12.6 (10.7).
std::optional<GpuChoice> choiceThatShares(const GpuRequest& request, const GpuChoice& choice) {
  if (request.rankCount < 2 || choice.protocol != "slots") return std::nullopt;
  if (messageBytes(request) % wire::kGpuLineBytes != 0) return std::nullopt;
  const bool gains = request.collective == kAllGather ||
                     (request.collective == kAllToAll && messageBytes(request) <= 8_MiB);
  if (!gains) return std::nullopt;
  GpuChoice sharing = choice;
  sharing.kernel = sharingKernel(request.rankCount);
  sharing.threads = kCollectiveThreads;
  sharing.isApart = sharing.isBulk = false;
  return sharing;
}

wire::GpuCall makeCall(const GpuRequest& request, const GpuChoice& choice) {
  wire::GpuCall call{};
  call.count = request.count;
  call.chunkBytes = choice.chunkBytes;
  call.blocks = static_cast<int16_t>(choice.blocks);
  call.collective = request.collective;
  call.type = request.type;
  call.op = request.op;
  call.algorithm = choice.shape;
  return call;
}

}  // namespace tutti::kernels::cuda
