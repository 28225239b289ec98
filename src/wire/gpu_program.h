// A schedule's program (schedule/schedule.h) as a GPU kernel runs it, and the rings of messages
// that such kernels use: for communicators and algorithms that the kernels of gpu_work.h do not
// know. Plain data, the same for host and device.
//
// Every pair of ranks has a ring for each block of a call, in the receiver's segment: block i of a
// rank talks to block i of the others only. A block takes its own slice of every chunk through the
// whole program, piece by piece. Messages go through slots (data, then a mark), or, where they are
// short, by lines (16 bytes: two words, each beside the message's number), or by wide ones (128
// bytes: 15 words and the number).
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "wire/gpu_work.h"
#include "wire/types.h"

namespace tutti::wire {

inline constexpr int32_t kGpuProgramRanks = 64;
inline constexpr int32_t kGpuProgramBlocks = 32;  // of a call or a transfer, at most
// Messages under way in a ring: as many as schedules of one host need (schedule/catalog.h). A step
// takes some 5 µs besides its bytes, so a few long slots are better than more short ones.
inline constexpr uint32_t kGpuProgramSlots = 2;
inline constexpr size_t kGpuProgramLinePayload = size_t{2} << 10;  // of a message by lines, at most

// Eight threads store a wide line at once, and nothing between two GPUs of NVLink takes it apart,
// so that its last word says that all are there.
inline constexpr size_t kGpuWideLineBytes = 128;
inline constexpr size_t kGpuWideLineWords = 15;
// A warp's. Messages take whole groups.
inline constexpr size_t kGpuWideGroupBytes = 4 * kGpuWideLineBytes;

// ---- the area in a rank's segment
// ----------------------------------------------------------------

// Between this rank and peer p, for block r: area.rings[p][r]. Zero at the start; all counters only
// grow. What travels of them is 32 bits, compared modulo 2^32.
struct alignas(128) GpuProgramRing {
  // Written by the peer's block after a message's data and a fence: its number + 1, and above it
  // the signature of its call.
  uint64_t mark[kGpuProgramSlots];
  // The same of the first message by lines, of either width, of a call, before its data.
  uint64_t opened;
  // Written by the peer: how many of this rank's messages it has read (32 bits).
  uint64_t credit;
  uint64_t lineCredit;
  // From here on this rank only: messages through slots, and by lines.
  uint64_t sent;
  uint64_t received;
  uint64_t linesSent;
  uint64_t linesReceived;
};

constexpr int32_t gpuProgramBlocks(int32_t rankCount) {
  return rankCount <= 16 ? kGpuProgramBlocks : kGpuProgramBlocks / 2;
}
constexpr size_t gpuProgramRingCount(int32_t rankCount) {
  return static_cast<size_t>(rankCount) * static_cast<size_t>(gpuProgramBlocks(rankCount));
}

// Where each rank's area is, as this rank's GPU maps it; written by the host, at the area's start.
inline constexpr size_t kGpuProgramTableBytes = kGpuProgramRanks * sizeof(uint64_t);

constexpr size_t gpuProgramSlotBytes(int32_t rankCount) {
  constexpr size_t kMost = size_t{64} << 10;
  constexpr size_t kAll = size_t{18} << 20;
  const size_t bytes = kAll / (gpuProgramRingCount(rankCount) * kGpuProgramSlots) / 512 * 512;
  return bytes < kMost ? bytes : kMost;
}
static_assert(gpuProgramSlotBytes(kGpuProgramRanks) >= 4096);

// Of a message by wide lines, with their flags; 0: there is no room for longer ones than by lines.
constexpr size_t gpuProgramWideBytes(int32_t rankCount) {
  constexpr size_t kMost = size_t{8} << 10;  // from there on slots are as fast
  constexpr size_t kAll = size_t{4} << 20;
  const size_t each = kAll / (gpuProgramRingCount(rankCount) * kGpuProgramSlots);
  const size_t bytes = (each < kMost ? each : kMost) / kGpuWideGroupBytes * kGpuWideGroupBytes;
  return bytes > 2 * kGpuProgramLinePayload ? bytes : 0;
}
// Whole cache lines, as slices are.
constexpr size_t gpuProgramWidePayload(int32_t rankCount) {
  constexpr size_t kLinePayload = kGpuWideLineWords * sizeof(uint64_t);
  return gpuProgramWideBytes(rankCount) / kGpuWideLineBytes * kLinePayload / 128 * 128;
}
// Of a message of a call, at most.
constexpr size_t gpuMessageBytes(GpuMessages messages, int32_t rankCount) {
  switch (messages) {
    case GpuMessages::kLines: return kGpuProgramLinePayload;
    case GpuMessages::kWideLines: return gpuProgramWidePayload(rankCount);
    case GpuMessages::kSlots: break;
  }
  return gpuProgramSlotBytes(rankCount);
}

constexpr size_t gpuProgramLinesOffset(int32_t rankCount) {
  return kGpuProgramTableBytes + gpuProgramRingCount(rankCount) * sizeof(GpuProgramRing);
}
// Lines take twice their payload.
constexpr size_t gpuProgramWideOffset(int32_t rankCount) {
  return gpuProgramLinesOffset(rankCount) +
         gpuProgramRingCount(rankCount) * kGpuProgramSlots * 2 * kGpuProgramLinePayload;
}
constexpr size_t gpuProgramSlotsOffset(int32_t rankCount) {
  return gpuProgramWideOffset(rankCount) +
         gpuProgramRingCount(rankCount) * kGpuProgramSlots * gpuProgramWideBytes(rankCount);
}
constexpr size_t gpuProgramAreaBytes(int32_t rankCount) {
  return gpuProgramSlotsOffset(rankCount) +
         gpuProgramRingCount(rankCount) * kGpuProgramSlots * gpuProgramSlotBytes(rankCount);
}

// What a communicator's segments hold. More than kGpuMaxRanks ranks have programs only, others the
// areas of gpu_work.h, and that of programs where some setting asks for one.
constexpr size_t gpuProgramOffset(int32_t rankCount) {
  return rankCount <= kGpuMaxRanks ? gpuAreaBytes(rankCount) : kGpuControlBytes;
}
constexpr size_t gpuSegmentBytes(int32_t rankCount, bool hasPrograms) {
  return hasPrograms ? gpuProgramOffset(rankCount) + gpuProgramAreaBytes(rankCount)
                     : gpuAreaBytes(rankCount);
}
static_assert(gpuSegmentBytes(16, true) <= size_t{28} << 20);
static_assert(gpuSegmentBytes(kGpuProgramRanks, true) <= size_t{28} << 20);

// ---- a program
// -----------------------------------------------------------------------------------

// As 16-bit words, a step after the other:
//   the chunk; counts of sources (low byte) and destinations, and kGpuProgramPost;
//   an operand each: its place, and the chunk, or the peer's rank
inline constexpr uint16_t kGpuProgramPost = uint16_t{1} << 15;
inline constexpr uint16_t kGpuProgramInput = uint16_t{0} << 14;
inline constexpr uint16_t kGpuProgramOutput = uint16_t{1} << 14;
inline constexpr uint16_t kGpuProgramLink = uint16_t{2} << 14;
inline constexpr uint16_t kGpuProgramPlace = uint16_t{3} << 14;  // the bits that tell

// Of a step's second word.
constexpr uint32_t gpuSourceCount(uint32_t counts) { return counts & 0xff; }
constexpr uint32_t gpuDestinationCount(uint32_t counts) { return counts >> 8 & 0x7f; }

// One call, in elements (as schedule::Layout) unless named bytes.
struct GpuProgramCall {
  const std::byte* input;
  std::byte* output;
  const void* scalarAddress;  // these two as GpuCall's
  uint64_t scalar;
  uint64_t blockElements;
  uint64_t chunkElements;
  uint64_t sliceElements;  // of a chunk, for each block of the call
  uint32_t pieceElements;  // of a slice, in a message
  uint32_t pieceCount;
  int32_t chunksPerBlock;
  int32_t firstInputBlock;
  int32_t firstOutputBlock;
  uint32_t signature;  // as GpuCall's
  uint32_t wordCount;
  uint16_t elementBytes;
  Collective collective;
  DataType type;
  ReduceOp op;
  GpuMessages messages;
};

// How a chunk is cut up. On cache lines of the chunk, so that blocks never share one.
struct GpuProgramCut {
  uint64_t sliceElements = 0;
  uint32_t pieceElements = 1;
  uint32_t pieceCount = 0;
};
constexpr GpuProgramCut cutForGpu(uint64_t chunkElements, uint32_t elementBytes, int32_t blocks,
                                  size_t messageBytes) {
  constexpr uint64_t kAlignmentBytes = 128;
  const uint64_t alignment = kAlignmentBytes / elementBytes;
  const uint64_t even =
      (chunkElements + static_cast<uint64_t>(blocks) - 1) / static_cast<uint64_t>(blocks);
  GpuProgramCut cut;
  cut.sliceElements = (even + alignment - 1) / alignment * alignment;
  const uint64_t most = messageBytes / elementBytes;
  cut.pieceElements = static_cast<uint32_t>(cut.sliceElements < most ? cut.sliceElements : most);
  if (chunkElements == 0) return {};
  cut.pieceCount =
      static_cast<uint32_t>((cut.sliceElements + cut.pieceElements - 1) / cut.pieceElements);
  return cut;
}

// From the start of its block to a chunk, and from the start of a buffer whose first block is
// `firstBlock`.
constexpr uint64_t gpuChunkStart(const GpuProgramCall& call, int32_t chunk) {
  return static_cast<uint64_t>(chunk % call.chunksPerBlock) * call.chunkElements;
}
constexpr uint64_t gpuChunkOffset(const GpuProgramCall& call, int32_t chunk, int32_t firstBlock) {
  const auto block = static_cast<uint64_t>(chunk / call.chunksPerBlock - firstBlock);
  return block * call.blockElements + gpuChunkStart(call, chunk);
}

// What a block of the grid has of a chunk in a piece: perhaps nothing. From the chunk's start.
struct GpuProgramRange {
  uint64_t first = 0;
  uint32_t elements = 0;
};
constexpr GpuProgramRange gpuRangeOf(const GpuProgramCall& call, int32_t chunk, int32_t block,
                                     uint32_t piece) {
  const uint64_t start = gpuChunkStart(call, chunk);
  const uint64_t left = start < call.blockElements ? call.blockElements - start : 0;
  const uint64_t length = left < call.chunkElements ? left : call.chunkElements;
  const uint64_t slice = static_cast<uint64_t>(block) * call.sliceElements;
  const uint64_t first = slice + uint64_t{piece} * call.pieceElements;
  uint64_t end = first + call.pieceElements;
  if (end > slice + call.sliceElements) end = slice + call.sliceElements;
  if (end > length) end = length;
  return {.first = first, .elements = end > first ? static_cast<uint32_t>(end - first) : 0};
}

inline constexpr size_t kGpuProgramWords = 1960;

// The parameter of a program's kernel; the grid has a block for each slice.
struct GpuProgramLaunch {
  GpuProgramView view;
  GpuProgramCall call;
  uint16_t words[kGpuProgramWords];
};
static_assert(std::is_trivially_copyable_v<GpuProgramLaunch> && sizeof(GpuProgramLaunch) <= 4096);

// One send, receive or local copy of a group; as GpuTransfer's where the names are.
struct GpuProgramTransfer {
  std::byte* buffer;
  uint64_t bytes;
  uint32_t signature;
  uint16_t firstBlock;
  uint8_t peerAndKind;  // the peer's rank; with kGpuProgramSends a send. The own rank: a local copy
  uint8_t blocks;
};
static_assert(sizeof(GpuProgramTransfer) == 24);
inline constexpr uint8_t kGpuProgramSends = uint8_t{1} << 7;
static_assert(kGpuProgramRanks <= kGpuProgramSends);

inline constexpr int32_t kGpuProgramTransfers = 2 * kGpuProgramRanks;

// The parameter of the kernel of sends and receives: at most one of each with every peer.
struct GpuProgramTransfers {
  GpuProgramView view;
  const std::byte* source;  // of the local copy, of which there is one at most
  int32_t transferCount;
  int32_t padding;
  GpuProgramTransfer transfers[kGpuProgramTransfers];
};
static_assert(std::is_trivially_copyable_v<GpuProgramTransfers> &&
              sizeof(GpuProgramTransfers) <= 4096);

}  // namespace tutti::wire
