#include "kernels/cuda/catalog.h"

#include <algorithm>
#include <array>

#include "base/units.h"

namespace tutti::kernels::cuda {
namespace {

using enum Collective;
using wire::GpuAlgorithm;
using wire::GpuPull;

constexpr int32_t kPumpThreads = 256;      // of a part by threads (kernels/cuda/pump.cuh)
constexpr int32_t kTransferThreads = 256;  // of a transfer's
constexpr const char* kFoldTransfers = "tuttiFoldTransfers";
// Blocks of all ranks that one GPU can hold at once: they wait for each other, so all must run.
// One on each multiprocessor; an A100 has 108.
constexpr int32_t kResidentBlocks = 104;
constexpr int32_t kResidentTransferBlocks = 3 * kResidentBlocks;
// A kernel that starts before its turn holds multiprocessors while it waits: small ones only, and
// none where ranks share a GPU.
constexpr int32_t kEarlyBlocks = 16;
// From here on half of what one of two ranks sends, which then has nothing else to do, lies in its
// own segment for the other to load (pulling.cuh). Eager µs on 2 × H200 (2026-11-23), all pushed
// and half pulled: reduce of 4 MB 20.1 and 14.6, of 16 MB 55.6 and 46.4, broadcast 57.6 and 48.1;
// all pulled and half: reduce of 32 MB 98.4 and 91.5, of 64 MB 190 and 184, of 256 MB 735 and 734,
// of 1 GB 2901 and 2927; broadcast 100.8 and 92.4, 197 and 184, 748 and 742, 2940 and 2950. On
// 2 × H100 (2026-11-25) of 1 GB: reduce 2939 and 2922, broadcast 3233 and 2905.
constexpr uint64_t kLeastPulled = 2_MiB;
// Where there are blocks for one way only: pulling 16 MB takes 64 µs, pushing 56.
constexpr uint64_t kLeastPulledByFew = 32_MiB;
// Of copy engines' sends: they say when to begin and when all is there. Where the receiver names no
// place they carry the bytes themselves.
constexpr int32_t kEngineBlocks = 8;
// From here on, of what one rank sends to the other, copy engines are faster than kernels.
// All-gather in place on 2 × H200, µs by kernels and by engines (2026-11-23): of 16 MB 36 and 43,
// of 64 MB 130 and 110, of 1 GB 1487 and 1394.
constexpr uint64_t kLeastByEngines = 32_MiB;
// A sender that first waits for its receiver's word loses a trip, some 1 µs.
constexpr uint64_t kLeastToTell = 4_MiB;

bool folds(Collective collective) {
  return collective == kAllReduce || collective == kReduceScatter || collective == kReduce;
}

// Ranks that share a GPU leave room for a second communicator of theirs.
int32_t sharersOf(const GpuRequest& request) {
  return request.ranksPerDevice > 1 ? 2 * request.ranksPerDevice : 1;
}

int32_t blockLimit(const GpuRequest& request) {
  const int32_t resident = kResidentBlocks / sharersOf(request);
  return std::clamp(std::min(resident, request.maxBlocks), 1, wire::kGpuMaxBlocks);
}

// Blocks that share the call, which is cut between `units`: as many as pay, or more where those are
// asked for, but none without a unit.
int32_t blocksFor(const GpuRequest& request, uint64_t wanted, uint64_t units, int32_t most) {
  const auto limit = static_cast<uint64_t>(most);
  const uint64_t asked =
      std::min({static_cast<uint64_t>(std::max(request.minBlocks, 1)), units, limit});
  const uint64_t blocks = asked <= wanted ? std::clamp<uint64_t>(wanted, 1, limit)
                                          : divideUp(units, divideUp(units, asked));
  return static_cast<int32_t>(blocks);
}

// The longest message from one rank to another, unless the call is cut up.
size_t messageBytes(const GpuRequest& request) {
  return static_cast<size_t>(request.count) * sizeOf(request.type);
}

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

// Of two ranks by blocks that send and receive, of more in parts apart.
const char* slotKernel(bool fold, int32_t rankCount) {
  if (rankCount <= 2) return fold ? "tuttiFoldSlots2" : "tuttiMoveSlots2";
  if (rankCount <= 4) return fold ? "tuttiFoldApart4" : "tuttiMoveApart4";
  return fold ? "tuttiFoldApart8" : "tuttiMoveApart8";
}

// Of more than two ranks.
const char* bulkKernel(bool fold, int32_t rankCount) {
  if (rankCount <= 4) return fold ? "tuttiFoldBulk4" : "tuttiMoveBulk4";
  return fold ? "tuttiFoldBulk8" : "tuttiMoveBulk8";
}

// Null where no call of such a communicator shares.
const char* sharingKernel(bool fold, int32_t rankCount) {
  if (rankCount <= 2) return fold ? nullptr : "tuttiMoveSharing2";
  if (rankCount <= 4) return fold ? "tuttiFoldSharing4" : "tuttiMoveSharing4";
  return fold ? "tuttiFoldSharing8" : "tuttiMoveSharing8";
}

const char* lineKernel(bool fold, int32_t rankCount) {
  if (rankCount <= 2) return fold ? "tuttiFoldLines2" : "tuttiMoveLines2";
  if (rankCount <= 4) return fold ? "tuttiFoldLines4" : "tuttiMoveLines4";
  return fold ? "tuttiFoldLines8" : "tuttiMoveLines8";
}
// Of more than two ranks.
const char* stageKernel(bool fold, int32_t rankCount) {
  if (rankCount <= 4) return fold ? "tuttiFoldTwoStages4" : "tuttiMoveTwoStages4";
  return fold ? "tuttiFoldTwoStages8" : "tuttiMoveTwoStages8";
}

// Null where none was measured: of more than four ranks.
const char* wideKernel(bool fold, int32_t rankCount) {
  if (rankCount <= 2) return fold ? "tuttiFoldWide2" : "tuttiMoveWide2";
  if (rankCount <= wire::kGpuRowRanks) return fold ? "tuttiFoldWide4" : "tuttiMoveWide4";
  return nullptr;
}

// Messages that one call makes of the vector: an owner each.
int32_t partCount(const GpuRequest& request, GpuAlgorithm shape) {
  if (shape != GpuAlgorithm::kTwoShot) return 1;
  return request.collective == kAllReduce ? request.rankCount : request.rankCount - 1;
}

enum class Way : uint8_t { kLines, kStages, kWide, kSlots };

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

Way wayOf(const GpuRequest& request) {
  const size_t bytes = messageBytes(request);
  if (request.rankCount <= 1) return Way::kSlots;
  if (goesWide(request)) return Way::kWide;
  if (bytes > lineLimit(request)) return Way::kSlots;
  const bool isStaged = hasStages(request);
  if ((!isStaged || bytes <= stageLimit(request)) && fits(request, Way::kLines)) return Way::kLines;
  return isStaged && fits(request, Way::kStages) ? Way::kStages : Way::kSlots;
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
  const int32_t resident = (isBulk ? 1 : 2) * kResidentBlocks / sharersOf(request);
  int32_t blocks = resident;
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

// Of a transfer: every peer may have a send and a receive in the same launch.
int32_t transferBlocks(const GpuRequest& request) {
  const int32_t pairs = 2 * std::max(1, request.rankCount - 1);
  const int32_t resident = kResidentTransferBlocks / sharersOf(request);
  return std::clamp(std::min(resident / pairs, request.maxBlocks), 1, wire::kGpuMaxBlocks);
}

uint64_t leastPulled(const GpuRequest& request) {
  if (request.transferBytes >= 0) return static_cast<uint64_t>(request.transferBytes);
  return transferBlocks(request) == wire::kGpuMaxBlocks ? kLeastPulled : kLeastPulledByFew;
}

// The newest of the architectures whose code runs on such a GPU; 0: none. All have machine code,
// and the last one PTX.
int32_t runningOn(std::string_view architectures, int32_t capability) {
  int32_t last = 0;
  int32_t newest = 0;
  for (size_t at = 0; at < architectures.size();) {
    const size_t end = std::min(architectures.find(' ', at), architectures.size());
    last = 0;
    for (const char digit : architectures.substr(at, end - at)) last = last * 10 + (digit - '0');
    if (last / 10 == capability / 10 && last <= capability) newest = std::max(newest, last);
    at = end + 1;
  }
  return newest == 0 && last <= capability ? last : newest;
}

}  // namespace

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
  choice.image = fold ? static_cast<int32_t>(request.type) : kMoveImage;
  if (way == Way::kSlots) {
    choice.isApart = request.rankCount > 2;
    choice.isBulk = goesInBulk(request);
    if (choice.isApart && !choice.isBulk) choice.threads = kPumpThreads;
    choice.kernel =
        choice.isBulk ? bulkKernel(fold, request.rankCount) : slotKernel(fold, request.rankCount);
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

// Eager µs on 2 × H200, through slots by halves of blocks and so (2026-11-22): all-reduce of 1
// MB 12.9 and 11.8, of 64 MB 217 and 199, of 1 GB 3222 and 2950; reduce-scatter 16.7 and 15.8 of 4
// MB, 1612 and 1485 of 1 GB; reduce 10.0 and 9.2, 3090 and 3052. What moves only: broadcast of 16
// MB 57.0 and 60.1, of 64 MB 202 and 199, of 1 GB 3041 and 2923, all-gather of 16 MB 38.6 and 38.2,
// of 1 GB 1634 and 1500, all-to-all 1617 and 1493.
bool goesAsTransfers(const GpuRequest& request) {
  if (request.rankCount != 2) return false;
  uint64_t least = 0;
  switch (request.collective) {
    case kAllReduce:
    case kReduceScatter:
    case kReduce: least = 512_KiB + 1; break;
    case kBroadcast: least = leastPulled(request); break;
    case kAllGather:
    case kAllToAll: least = 8_MiB; break;
    case kGather:
    case kScatter:
    case kSend:
    case kRecv: return false;
  }
  if (request.transferBytes >= 0) least = static_cast<uint64_t>(request.transferBytes);
  const bool isWanted = request.transferBytes >= 0 || request.ranksPerDevice == 1;
  return isWanted && messageBytes(request) >= least && wayOf(request) == Way::kSlots;
}

TransferParts transferParts(const GpuRequest& request, const CallPlace& place) {
  const Collective collective = request.collective;
  const bool fold = folds(collective);
  const bool hasRoot = collective == kBroadcast || collective == kReduce;
  const bool isRoot = hasRoot && place.root == place.self;
  const int32_t peer = 1 - place.self;
  auto* input = static_cast<std::byte*>(const_cast<void*>(place.input));
  auto* output = static_cast<std::byte*>(place.output);
  const size_t bytes = messageBytes(request);
  // Of a vector with a block a rank, that rank's.
  const auto blockOf = [&](std::byte* vector, int32_t rank, bool hasBlocks) {
    return vector + (hasBlocks ? static_cast<size_t>(rank) * bytes : 0);
  };
  TransferParts list;
  const auto add = [&](const TransferPart& part) {
    list.parts[static_cast<size_t>(list.count++)] = part;
  };
  const bool exchanges = collective == kAllToAll;
  const bool scatters = collective == kReduceScatter || exchanges;
  const bool gathers = collective == kAllGather || exchanges;
  std::byte* sent = blockOf(input, peer, scatters);
  std::byte* received = blockOf(output, peer, gathers);
  const bool isInPlace =
      (collective == kAllReduce || exchanges) && sent < received + bytes && received < sent + bytes;
  if (!hasRoot || isRoot == (collective == kBroadcast))
    add({.isSend = true, .isInPlace = isInPlace, .buffer = sent, .peer = peer});
  std::byte* kept = blockOf(input, place.self, scatters);
  if (!hasRoot || isRoot == (collective == kReduce)) {
    add({.folds = fold,
         .isInPlace = isInPlace,
         .buffer = received,
         .source = fold ? kept : nullptr,
         .peer = peer});
  }
  std::byte* own = blockOf(output, place.self, gathers);
  if (!fold && (gathers || isRoot) && kept != own)
    add({.buffer = own, .source = kept, .peer = place.self});
  return list;
}

GpuGrid gridOf(const GpuChoice& choice, int32_t blocks, int32_t rankCount, bool isBulk) {
  if (!choice.isApart) return {.blocks = blocks, .threads = choice.threads, .sharedBytes = 0};
  const ApartShape shape = apartShape(choice.image != kMoveImage, choice.isBulk, isBulk);
  return {.blocks = (blocks + shape.lanes - 1) / shape.lanes * shape.blocks,
          .threads = shape.threads,
          .sharedBytes = isBulk ? wire::gpuBulkBytes(rankCount) : 0};
}

uint32_t mostSharedBytes(std::string_view kernel, int32_t rankCount) {
  const bool isBulk = rankCount > 2 && (kernel == bulkKernel(true, rankCount) ||
                                        kernel == bulkKernel(false, rankCount));
  return isBulk ? wire::gpuBulkBytes(rankCount) : 0;
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

// 4 × H200, 1 GB: all-reduce 4917 µs (5077 through slots), all-gather 2409 (2457), reduce 3291
// (3442). All-to-all of 16 MB 51 (57), of 1 GB 2555 (2463). Not where one rank has all: a broadcast
// in two stages took 3263 µs so (3214), and 33 of 4 MB (25), among two ranks 12.6 of 1 MB (10.7)
// (2026-11-22).
std::optional<GpuChoice> choiceThatShares(const GpuRequest& request, const GpuChoice& choice) {
  if (request.rankCount < 2 || choice.protocol != "slots") return std::nullopt;
  if (messageBytes(request) % wire::kGpuLineBytes != 0) return std::nullopt;
  const bool fold = choice.shape == GpuAlgorithm::kTwoShot && request.collective != kBroadcast;
  const bool moves = request.collective == kAllGather ||
                     (request.collective == kAllToAll && messageBytes(request) <= 8_MiB);
  const char* kernel = fold || moves ? sharingKernel(fold, request.rankCount) : nullptr;
  if (kernel == nullptr) return std::nullopt;
  GpuChoice sharing = choice;
  sharing.kernel = kernel;
  sharing.threads = kCollectiveThreads;
  sharing.isApart = sharing.isBulk = false;
  return sharing;
}

TransferShape shapeTransfer(uint64_t bytes, const GpuRequest& request) {
  const int32_t most = transferBlocks(request);
  // A line a thread; with a send and a receive in as many blocks as may start early.
  constexpr uint64_t kLeastByLines = 2_KiB;
  const size_t blockRoom = wire::gpuTransferLines(request.rankCount) * wire::kGpuLinePayload;
  const bool needsMore = bytes > blockRoom * (kEarlyBlocks / 2) && request.rankCount > 2;
  const int32_t byLines =
      blocksFor(request, divideUp(bytes, kLeastByLines), divideUp(bytes, wire::kGpuLinePayload),
                std::min(most, needsMore ? wire::kGpuTransferLineBlocks : kEarlyBlocks / 2));
  const size_t room = static_cast<size_t>(byLines) * blockRoom;
  if (bytes <= room)
    return {.blocks = byLines, .goesByLines = true, .tellsPlace = false, .pull = GpuPull::kNone};
  const bool isOneWay = request.collective == kReduce || request.collective == kBroadcast;
  const bool isPulled = request.rankCount == 2 && isOneWay && bytes >= leastPulled(request);
  // The receiver's loads under way are bound by its threads.
  const bool isAlone = isPulled && most == wire::kGpuMaxBlocks;
  const int32_t blocks = blocksFor(request, divideUp(bytes, 8_KiB), divideUp(bytes, 16),
                                   isAlone ? wire::kGpuMaxRings : most);
  const auto pull = blocks == wire::kGpuMaxRings ? GpuPull::kHalf : GpuPull::kAll;
  return {.blocks = blocks,
          .goesByLines = false,
          .tellsPlace = !isPulled && bytes >= kLeastToTell && request.ranksPerDevice == 1,
          .pull = isPulled ? pull : GpuPull::kNone};
}

bool goesByEngines(const GpuRequest& request) {
  const bool moves = request.collective == kAllGather || request.collective == kAllToAll;
  const uint64_t bytes = messageBytes(request);
  return moves && request.rankCount == 2 && request.ranksPerDevice == 1 && bytes != 0 &&
         (request.prefersEngines || bytes >= kLeastByEngines);
}

TransferShape engineShape(const GpuRequest& request) {
  return {.blocks = std::clamp(request.maxBlocks, 1, kEngineBlocks),
          .goesByLines = false,
          .tellsPlace = true,
          .pull = GpuPull::kNone};
}

GpuChoice transferKernelOf(const GpuRequest& request) {
  GpuChoice choice = transferKernel();
  if (!folds(request.collective)) return choice;
  choice.algorithm = scheduleName(request.collective, shapeOf(request, Way::kSlots));
  choice.kernel = kFoldTransfers;
  choice.image = static_cast<int32_t>(request.type);
  return choice;
}

bool takesTransfers(std::string_view kernel) {
  return kernel == transferKernel().kernel || kernel == kFoldTransfers;
}

GpuChoice transferKernel() {
  return {.algorithm = "direct",
          .protocol = "slots",
          .kernel = "tuttiTransfers",
          .image = kMoveImage,
          .threads = kTransferThreads,
          .blocks = 1,
          .chunkBytes = 0,
          .shape = GpuAlgorithm::kDirect,
          .startsEarly = false};
}

// Machine code runs on later GPUs of its generation (the tens), PTX on all later ones.
bool doRunOn(std::string_view architectures, int32_t capability) {
  return runningOn(architectures, capability) != 0;
}

bool canBulk(std::string_view architectures, int32_t capability, uint32_t sharedBytesPerBlock) {
  constexpr int32_t kLeast = 90;
  constexpr uint32_t kOfKernel = 16_KiB;  // what one declares by itself, and more
  uint32_t most = 0;
  for (int32_t ranks = 3; ranks <= wire::kGpuMaxRanks; ++ranks)
    most = std::max(most, wire::gpuBulkBytes(ranks));
  return runningOn(architectures, capability) >= kLeast && sharedBytesPerBlock >= most + kOfKernel;
}

KernelNames kernelNames(int32_t image, int32_t rankCount) {
  if (image >= kProgramImages) {
    if (image != kProgramImages + kMoveImage) return {"tuttiFoldProgram"};
    return {"tuttiMoveProgram", "tuttiProgramTransfers"};
  }
  if (rankCount > wire::kGpuMaxRanks) return {};
  const bool fold = image != kMoveImage;
  const char* transfers = rankCount == 2 ? kFoldTransfers : nullptr;
  return {lineKernel(fold, rankCount),
          slotKernel(fold, rankCount),
          rankCount > 2 ? stageKernel(fold, rankCount) : nullptr,
          fold ? transfers : transferKernel().kernel,
          sharingKernel(fold, rankCount),
          wideKernel(fold, rankCount),
          rankCount > 2 ? bulkKernel(fold, rankCount) : nullptr};
}

const char* stepKernel(DataType type) {
  switch (type) {
    case DataType::kInt8: return "tuttiStep_kInt8";
    case DataType::kUint8: return "tuttiStep_kUint8";
    case DataType::kInt32: return "tuttiStep_kInt32";
    case DataType::kUint32: return "tuttiStep_kUint32";
    case DataType::kInt64: return "tuttiStep_kInt64";
    case DataType::kUint64: return "tuttiStep_kUint64";
    case DataType::kFloat16: return "tuttiStep_kFloat16";
    case DataType::kFloat32: return "tuttiStep_kFloat32";
    case DataType::kFloat64: return "tuttiStep_kFloat64";
    case DataType::kBfloat16: return "tuttiStep_kBfloat16";
    case DataType::kFloat8E4M3: return "tuttiStep_kFloat8E4M3";
    case DataType::kFloat8E5M2: return "tuttiStep_kFloat8E5M2";
  }
  return "";
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
