// Sends and receives, and collectives of two ranks that go as such.
#include <algorithm>

#include "base/units.h"
#include "kernels/cuda/choosing.h"
#include "kernels/cuda/kernel_names.h"

namespace tutti::kernels::cuda {
namespace {

using enum Collective;
using wire::GpuAlgorithm;
using wire::GpuPull;

constexpr int32_t kTransferThreads = 256;  // of a transfer's
// From here on half of what one of two ranks sends, which then has nothing else to do, lies in its
// own segment for the other to load (pulling.cuh). Eager µs on 2 × H200 (2026-11-23), all pushed
// and half pulled: reduce of 4 MB 20.1 and 14.6, of 16 MB 55.6 and 46.4, broadcast 57.6 and 48.1;
// all pulled and half: reduce of 32 MB 98.4 and 91.5, of 64 MB 190 and 184, of 256 MB 735 and 734,
// of 1 GB 2901 and 2927; broadcast 100.8 and 92.4, 197 and 184, 748 and 742, 2940 and 2950. On
// 2 × H100 (2026-11-25) of 1 GB: reduce 2939 and 2922, broadcast 3233 and 2905.
constexpr uint64_t kLeastPulled = 2_MiB;
// Where there are blocks for one way only: pulling 16 MB takes 64 µs, pushing 56.
constexpr uint64_t kLeastPulledByFew = 32_MiB;
// From here on, of what one rank sends to the other, copy engines are faster than kernels.
// All-gather in place on 2 × H200, µs by kernels and by engines (2026-11-23): of 16 MB 36 and 43,
// of 64 MB 130 and 110, of 1 GB 1487 and 1394.
constexpr uint64_t kLeastByEngines = 32_MiB;
// A sender that first waits for its receiver's word loses a trip, some 1 µs.
constexpr uint64_t kLeastToTell = 4_MiB;
// Sends and receives by wide lines: above and up to; up to where in few blocks.
constexpr uint64_t kLeastByRows = 16_KiB;
constexpr uint64_t kMostByRows = 16_MiB;
constexpr uint64_t kMostByEarlyRows = 64_KiB;

// Of a transfer: every peer may have a send and a receive in the same launch. µs of exchanges of
// four H200 by 52 blocks a transfer, as an A100 has room for, and by 64 (2026-11-28): of 64 MB 221
// and 212, of 1 GB 3270 and 3140.
int32_t transferBlocks(const GpuRequest& request) {
  const int32_t resident =
      residentBlocks(request, folds(request.collective) ? kFoldingBlocks : kMovingBlocks);
  return std::clamp(std::min(resident / transfersAtOnce(request.rankCount), request.maxBlocks), 1,
                    wire::kGpuMaxBlocks);
}

uint64_t leastPulled(const GpuRequest& request) {
  if (request.transferBytes >= 0) return static_cast<uint64_t>(request.transferBytes);
  return transferBlocks(request) == wire::kGpuMaxBlocks ? kLeastPulled : kLeastPulledByFew;
}

// Blocks of a send or receive by wide lines; 0: it goes otherwise.
int32_t rowBlocks(uint64_t bytes, const GpuRequest& request) {
  const bool isTransfer = request.collective == kSend || request.collective == kRecv;
  const int32_t most =
      std::min(transferBlocks(request), wire::gpuTransferRowBlocks(request.rankCount));
  if (!isTransfer || !request.keepsLines || most == 0) return 0;
  uint64_t above = kLeastByRows;
  uint64_t upTo = kMostByRows;
  if (request.wideBytes >= 0) {
    constexpr uint64_t kMost = 1_GiB;
    above = 0;
    upTo = std::min(static_cast<uint64_t>(request.wideBytes), kMost);
  }
  if (bytes <= above || bytes > upTo) return 0;
  const uint64_t rows = divideUp(bytes, wire::kGpuRowPayload);
  const int32_t limit = bytes <= kMostByEarlyRows ? std::min(most, kEarlyBlocks / 2) : most;
  // Of a warp. With one, so in twice the blocks, calls of 128 KB would be a little faster, but
  // other communicators' need room beside them.
  constexpr uint64_t kRows = 2;
  return blocksFor(request, divideUp(rows, kRows * wire::kGpuTransferRowWarps), rows, limit);
}

}  // namespace

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
  const auto ranks = static_cast<size_t>(request.rankCount);
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
  const size_t span = exchanges ? ranks * bytes : bytes;
  const bool isInPlace =
      (collective == kAllReduce || exchanges) && input < output + span && output < input + span;
  std::byte* kept = blockOf(input, place.self, scatters);
  // So that no two ranks begin with the same peer.
  for (int32_t turn = 1; turn < request.rankCount; ++turn) {
    const int32_t peer = (place.self + turn) % request.rankCount;
    if (!hasRoot || isRoot == (collective == kBroadcast)) {
      add({.isSend = true,
           .isInPlace = isInPlace,
           .buffer = blockOf(input, peer, scatters),
           .peer = peer});
    }
    if (!hasRoot || isRoot == (collective == kReduce)) {
      add({.folds = fold,
           .isInPlace = isInPlace,
           .buffer = blockOf(output, peer, gathers),
           .source = fold ? kept : nullptr,
           .peer = peer});
    }
  }
  std::byte* own = blockOf(output, place.self, gathers);
  if (!fold && (gathers || isRoot) && kept != own)
    add({.buffer = own, .source = kept, .peer = place.self});
  return list;
}

TransferShape shapeTransfer(uint64_t bytes, const GpuRequest& request) {
  const int32_t most = transferBlocks(request);
  if (const int32_t byRows = rowBlocks(bytes, request); byRows > 0) {
    return {.blocks = byRows,
            .messages = wire::GpuMessages::kWideLines,
            .tellsPlace = false,
            .pull = GpuPull::kNone};
  }
  // A line a thread; with a send and a receive in as many blocks as may start early.
  constexpr uint64_t kLeastByLines = 2_KiB;
  const size_t blockRoom = wire::gpuTransferLines(request.rankCount) * wire::kGpuLinePayload;
  const bool needsMore = bytes > blockRoom * (kEarlyBlocks / 2) && request.rankCount > 2;
  const int32_t byLines =
      blocksFor(request, divideUp(bytes, kLeastByLines), divideUp(bytes, wire::kGpuLinePayload),
                std::min(most, needsMore ? wire::kGpuTransferLineBlocks : kEarlyBlocks / 2));
  const size_t room = request.lineBytes != 0 ? static_cast<size_t>(byLines) * blockRoom : 0;
  if (bytes <= room)
    return {.blocks = byLines,
            .messages = wire::GpuMessages::kLines,
            .tellsPlace = false,
            .pull = GpuPull::kNone};
  const bool isOneWay = request.collective == kReduce || request.collective == kBroadcast;
  const bool isPulled = request.rankCount == 2 && isOneWay && bytes >= leastPulled(request);
  // The receiver's loads under way are bound by its threads.
  const bool isAlone = isPulled && most == wire::kGpuMaxBlocks;
  const int32_t blocks = blocksFor(request, divideUp(bytes, 8_KiB), divideUp(bytes, 16),
                                   isAlone ? wire::kGpuMaxRings : most);
  const auto pull = blocks == wire::kGpuMaxRings ? GpuPull::kHalf : GpuPull::kAll;
  return {.blocks = blocks,
          .messages = wire::GpuMessages::kSlots,
          .tellsPlace = !isPulled && bytes >= kLeastToTell && request.ranksPerDevice == 1,
          .pull = isPulled ? pull : GpuPull::kNone};
}

bool goesByEngines(const GpuRequest& request) {
  const bool moves = request.collective == kAllGather || request.collective == kAllToAll;
  const uint64_t bytes = messageBytes(request);
  if (!moves || bytes == 0 || request.rankCount > wire::kGpuMaxRanks) return false;
  return request.prefersEngines ||
         (request.rankCount == 2 && request.ranksPerDevice == 1 && bytes >= kLeastByEngines);
}

// Blocks say when to begin and when all is there. Where the receiver names no place they carry the
// bytes themselves.
TransferShape engineShape(const GpuRequest& request) {
  const int32_t most = std::min(request.maxBlocks, wire::kGpuEngineBlocks);
  return {.blocks = std::max(most / (request.rankCount - 1), 1),
          .messages = wire::GpuMessages::kSlots,
          .tellsPlace = true,
          .pull = GpuPull::kNone};
}

GpuChoice transferKernelOf(const GpuRequest& request) {
  GpuChoice choice = transferKernel();
  if (!folds(request.collective)) return choice;
  choice.algorithm = scheduleName(request.collective, shapeOf(request, Way::kSlots));
  choice.kernel = kFoldTransfers;
  choice.image = foldImage(request.type);
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

}  // namespace tutti::kernels::cuda
