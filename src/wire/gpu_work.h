// What the host hands a GPU kernel, and how a rank's device segment is laid out: the memory that
// the kernels of all ranks of an NVLink domain write into. Plain data, the same for host and
// device.
//
// Every rank has one segment, mapped by all its peers. A kernel writes its own input into peers'
// segments (push: posted stores hide the latency) and reads what peers wrote into its own. Block i
// of a rank talks to block i of its peers only, and how many blocks a call has follows from the
// call and the communicator, never from the GPU at hand; so there is no grid-wide barrier, and
// ranks agree without asking.
//
// Three ways carry the bytes:
//   lines   16 bytes: two words of payload, each beside the call's epoch. The receiver polls the
//           data itself. For short calls. Two sets, used in turn; send and receive have their own.
//   rows    512 bytes that a warp writes at once, of which each 128 end in a number that says that
//           they are there: wide lines. For calls of middling length, over links that keep such
//           stores whole. Send and receive have rings of their own.
//   slots   rings of staging slots: data, then a mark a slot; credits come back. Each
//           pair and block has a ring for what is sent of the input, and one for what is passed on
//           (second stage). For everything longer.
// Of those, calls whose outputs all ranks have mapped (GpuReach) write to the outputs themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "wire/types.h"

namespace tutti::wire {

inline constexpr int32_t kGpuMaxRanks = 8;
inline constexpr int32_t kGpuMaxBlocks = 64;                // of one rank, in collectives
inline constexpr int32_t kGpuMaxRings = 2 * kGpuMaxBlocks;  // of a pair: a block's two stages
inline constexpr int32_t kGpuMaxSlots = 6;                  // of a ring
inline constexpr int32_t kGpuEngineBlocks = 8;              // of a transfer by a copy engine
inline constexpr int32_t kGpuPulledSlots = 3;  // of a ring of a pulled transfer (GpuTransfer)
inline constexpr int32_t kGpuLaneParts = 3;    // of a lane whose parts are apart
inline constexpr int32_t kGpuBulkLanes = 4;    // that share blocks, where copy engines of
                                               // multiprocessors move (kernels' bulk.cuh)
inline constexpr int32_t kGpuFoldLanes = 2;    // of those, where a block folds
// Blocks of workers, for each of senders and each of collectors: folds are made by threads in any
// case.
constexpr int32_t gpuWorkerBlocks(bool folds, bool isBulk) {
  return folds && isBulk ? kGpuBulkLanes / kGpuFoldLanes : 1;
}
inline constexpr int32_t kGpuMaxCalls = 16;                    // collectives in one launch
inline constexpr int32_t kGpuMaxTransfers = 2 * kGpuMaxRanks;  // sends and receives in one launch
inline constexpr uint32_t kGpuMaxAlive = 1024;  // buffers of graphs' calls, in a communicator's
                                                // life
// How a call's messages go.
enum class GpuMessages : uint8_t { kSlots, kLines, kWideLines };
inline constexpr int32_t kGpuMaxReaches = 4;  // calls in one launch with outputs
                                              // that peers reach

// ---- the segment
// ---------------------------------------------------------------------------------

// Written by this rank's kernels only; zero at the start. All counters are 64-bit and only grow;
// what travels of them is 32 bits, compared modulo 2^32.
struct GpuCounters {
  uint64_t sent;      // messages this rank has put into the peer's ring
  uint64_t received;  // messages it has taken out of its own ring from the peer
};

// A number and, in words of their own, its flag: see the kernels' storeLine.
struct alignas(16) GpuLine {
  uint32_t words[4];
};

// Signatures have 31 bits; the 32nd says of a word of `entered` that the rank shares its output.
inline constexpr uint32_t kGpuShares = uint32_t{1} << 31;

struct alignas(128) GpuControl {
  // entered[set][b][p], written by rank p's block b as it begins collective number e of that block
  // (set = e & 1): low 32 bits of e, and the call's signature above them. See kernels' stories.
  uint64_t entered[2][kGpuMaxRings][kGpuMaxRanks];
  // mark[r][p][slot] of ring r, written by rank p after the slot's data: message number + 1 (32
  // bits), and above it the signature.
  uint64_t mark[kGpuMaxRings][kGpuMaxRanks][kGpuMaxSlots];
  // credit[r][p], written by rank p: how many of this rank's messages it has taken out (32 bits).
  uint64_t credit[kGpuMaxRings][kGpuMaxRanks];
  // outputs[set][b][p], with entered[set][b][p] where that says so: the address at which this rank
  // has rank p's output, flag e. Block b of this rank then writes there, and rank p's block b says
  // in finished[b][p] that it is through with collective e of that kind.
  GpuLine outputs[2][kGpuMaxBlocks][kGpuMaxRanks];
  uint64_t finished[kGpuMaxBlocks][kGpuMaxRanks];
  // places[b][p]: where this rank has the buffer into which rank p's block b receives, or null.
  GpuLine places[kGpuMaxBlocks][kGpuMaxRanks];
  // From here on this rank only.
  GpuCounters counters[kGpuMaxRings][kGpuMaxRanks];
  uint64_t epoch[kGpuMaxRings];  // collectives that block b has begun
  // through[b]: messages of a transfer in place that its sending block b has read; 0 between calls.
  uint64_t through[kGpuMaxBlocks];
  // Chunks that lane b's sender has read in all its calls, and its worker has gone through: the
  // worker of a call in place waits for the sender (kernels' apart.cuh).
  uint64_t readChunks[kGpuMaxBlocks];
  uint64_t workedChunks[kGpuMaxBlocks];
  uint32_t dead;  // a call failed or was aborted: every later one returns at once
  // Written by the host: which buffers of calls in graphs the peers still have mapped. Read by
  // kernels (GpuReach::alive). Not in host memory: 64 blocks that read one word there took 46 µs.
  uint32_t alive[kGpuMaxAlive];
  // gated[b][p]: whether the receive from rank p whose gate block b was last named a place. From
  // kernel to kernel.
  uint32_t gated[kGpuEngineBlocks][kGpuMaxRanks];
  // Launches in parts apart: how many the first block of the grid has begun, how many the last has
  // ended, and in how many of those one began late (GpuView::starts); when they began the present
  // one, in nanoseconds, that of the first above its number.
  uint32_t begunByFirst, endedByLast, late, lastBegan;
  uint64_t firstBegan;
};

inline constexpr size_t kGpuControlBytes = size_t{128} << 10;
static_assert(sizeof(GpuControl) <= kGpuControlBytes);

inline constexpr size_t kGpuLineBytes = 16;
inline constexpr size_t kGpuLinePayload = 8;
// Of one set, shared by the ranks that write there: so many that 256 KB among four ranks go by
// lines in one stage, and 512 KB among two.
constexpr size_t gpuLinesPerBlock(int32_t rankCount) { return rankCount <= 2 ? 1024 : 1536; }
constexpr size_t gpuLineAreaBytes(int32_t rankCount) {
  return 2 * size_t{kGpuMaxBlocks} * gpuLinesPerBlock(rankCount) * kGpuLineBytes;
}
// Of sends and receives: two sets, shared by the ranks that write there and their first blocks.
inline constexpr int32_t kGpuTransferLineBlocks = 16;
constexpr size_t gpuTransferLineAreaBytes(int32_t rankCount) {
  return size_t{rankCount <= 2 ? 512U : 1024U} << 10;
}

// Lines of block b from one rank, in one set; a multiple of 8.
constexpr size_t gpuLinesPerPeer(int32_t rankCount) {
  return gpuLinesPerBlock(rankCount) / static_cast<size_t>(rankCount > 1 ? rankCount - 1 : 1) / 8 *
         8;
}

// The same of a block of a send.
constexpr size_t gpuTransferLines(int32_t rankCount) {
  const size_t peers = rankCount > 1 ? static_cast<size_t>(rankCount) - 1 : 1;
  const size_t areas = 2 * peers * static_cast<size_t>(kGpuTransferLineBlocks);
  return gpuTransferLineAreaBytes(rankCount) / areas / kGpuLineBytes;
}

// Rings of a pair that have slots: two ranks need no second stage. A transfer's block uses all of
// its.
constexpr int32_t gpuRings(int32_t rankCount) {
  return rankCount > 2 ? kGpuMaxRings : kGpuMaxBlocks;
}

// Slots of a ring of the first stage and of the second. With more ranks a few long ones are faster
// than more short ones: a step costs some 2 µs besides its bytes. Eager µs on 4 × H200 with 3 and 3
// of 15 KB, and with 4 and 4: all-reduce of 1 GB 4709 and 4688, broadcast 3075 and 3088, of 16 MB
// 64.3 and 60.9 (2026-11-27): not worth the memory. Of more ranks by the same measure, not tried.
constexpr int32_t gpuFirstSlots(int32_t rankCount) { return rankCount <= 2 ? kGpuMaxSlots : 3; }
constexpr int32_t gpuSecondSlots(int32_t rankCount) { return rankCount <= 2 ? 0 : 3; }

// Of all rings of a pair.
constexpr size_t gpuPairSlots(int32_t rankCount) {
  return size_t{kGpuMaxBlocks} *
         static_cast<size_t>(gpuFirstSlots(rankCount) + gpuSecondSlots(rankCount));
}

// Memory comes in pieces of 2 MB: with 2 ranks a segment takes 26 MB, with more 28 at most.
constexpr size_t gpuStagingBytes(int32_t rankCount) {
  return size_t{rankCount <= 2 ? 20736U : 17280U} << 10;
}

// Payload of a slot: whole passes of a pump's movers, 18 with 2 ranks and 5 with 4.
constexpr size_t gpuSlotBytes(int32_t rankCount) {
  const size_t peers = rankCount > 1 ? static_cast<size_t>(rankCount) - 1 : 1;
  const size_t slots = peers * gpuPairSlots(rankCount);
  return gpuStagingBytes(rankCount) / slots / 256 * 256;
}
static_assert(gpuSlotBytes(kGpuMaxRanks) >= 4096);

// Buffers of a block whose copy engine moves: a message for each peer of each of its lanes.
constexpr uint32_t gpuBulkBytes(int32_t rankCount) {
  return static_cast<uint32_t>(gpuSlotBytes(rankCount)) *
         static_cast<uint32_t>(kGpuBulkLanes * (rankCount - 1));
}

inline constexpr size_t kGpuLineOffset = kGpuControlBytes;
constexpr size_t gpuTransferLineOffset(int32_t rankCount) {
  return kGpuLineOffset + gpuLineAreaBytes(rankCount);
}
constexpr size_t gpuStagingOffset(int32_t rankCount) {
  return gpuTransferLineOffset(rankCount) + gpuTransferLineAreaBytes(rankCount);
}
// Rows (kernels' wide_lines.cuh): places for two from each peer, of each warp of a block, in two
// sets.
inline constexpr int32_t kGpuRowRanks = 4;  // more have none
inline constexpr size_t kGpuRowBytes = 512;
inline constexpr size_t kGpuRowPayload = 480;
inline constexpr int32_t kGpuRowWarps = 16;  // of a block
constexpr size_t gpuRowAreaBytes(int32_t rankCount) {
  if (rankCount > kGpuRowRanks) return 0;
  const size_t peers = rankCount > 1 ? static_cast<size_t>(rankCount) - 1 : 1;
  return 2 * size_t{kGpuMaxBlocks} * peers * 2 * kGpuRowWarps * kGpuRowBytes;
}
constexpr size_t gpuRowOffset(int32_t rankCount) {
  return gpuStagingOffset(rankCount) + gpuStagingBytes(rankCount);
}

// Rows of sends and receives (kernels' transfer_rows.cuh), of two ranks: more have no memory left
// for them. Each warp of a block has a ring of its own.
inline constexpr int32_t kGpuTransferRowWarps = 8;
inline constexpr uint64_t kGpuTransferRowPlaces = 4;  // of a ring
constexpr int32_t gpuTransferRowBlocks(int32_t rankCount) {
  return rankCount == 2 ? kGpuMaxBlocks : 0;
}
// What a rank knows of its warp's two rings with the peer. All only grow.
struct alignas(32) GpuRowRing {
  uint64_t taken;  // of the rows that this rank has sent; written by the peer
  uint64_t sent;   // the others by this rank's kernels only
  uint64_t received;
};
constexpr int32_t gpuTransferRowRings(int32_t rankCount) {
  return gpuTransferRowBlocks(rankCount) * kGpuTransferRowWarps;
}
constexpr size_t gpuTransferRingOffset(int32_t rankCount) {
  return gpuRowOffset(rankCount) + gpuRowAreaBytes(rankCount);
}
constexpr size_t gpuTransferRowOffset(int32_t rankCount) {
  return gpuTransferRingOffset(rankCount) +
         static_cast<size_t>(gpuTransferRowRings(rankCount)) * sizeof(GpuRowRing);
}
// Of every rank. Zeroed by the host before peers learn of it.
constexpr size_t gpuAreaBytes(int32_t rankCount) {
  return gpuTransferRowOffset(rankCount) +
         static_cast<size_t>(gpuTransferRowRings(rankCount)) * kGpuTransferRowPlaces * kGpuRowBytes;
}
static_assert(gpuAreaBytes(2) <= size_t{26} << 20);
static_assert(gpuAreaBytes(kGpuRowRanks) <= size_t{28} << 20);
static_assert(gpuAreaBytes(kGpuMaxRanks) <= size_t{28} << 20);

// ---- failures
// ------------------------------------------------------------------------------------

enum class GpuFault : uint32_t {
  kNone = 0,
  kAborted = 1,   // the host raised the abort word
  kTimedOut = 2,  // `peer` did not come within timeoutNs
  kMismatch = 3,  // `peer` runs another call: `theirs` against `ours`
};

// Host memory that the device can write (pinned, mapped); zero at the start. A kernel writes it
// once in the communicator's life, `fault` last (after a system-wide fence).
struct GpuError {
  uint32_t fault;  // GpuFault
  int32_t peer;    // who was awaited
  uint32_t block;
  uint32_t collective;  // Collective
  uint64_t number;      // epoch or message number that was awaited
  uint32_t ours;        // signatures
  uint32_t theirs;
};
static_assert(sizeof(GpuError) == 32);

// ---- a launch
// ------------------------------------------------------------------------------------

// What stays the same for a communicator. Device addresses as this rank's GPU maps them.
struct GpuView {
  std::byte* segments[kGpuMaxRanks];  // every rank's, its own included
  const uint32_t* abortWord;          // host memory, mapped: nonzero ends every wait
  GpuError* error;                    // host memory, mapped
  // The same: launches in parts apart (kernels' apart.cuh), above how many of them had to wait for
  // multiprocessors (modulo 2^32).
  uint64_t* starts;
  uint64_t timeoutNs;  // of one wait; 0: none
  int32_t rank;
  int32_t rankCount;
};

// The same for programs (wire/gpu_program.h), of any number of ranks: the others' segments are
// listed in this rank's.
struct GpuProgramView {
  std::byte* own;
  const uint32_t* abortWord;
  GpuError* error;
  uint64_t timeoutNs;
  int32_t rank;
  int32_t rankCount;
};

enum class GpuAlgorithm : uint8_t { kDirect, kOneShot, kTwoShot };

// One collective. `count` is the argument of the API call, in elements.
struct GpuCall {
  const void* input;
  void* output;
  uint64_t count;
  const void* scalarAddress;  // kPreMulSum with a scalar in device memory, else null
  uint64_t scalar;            // kPreMulSum: the scalar's bits, in the element's type
  uint32_t signature;         // of collective, count, type, op, root; equal on all ranks; 31 bits
  uint32_t chunkBytes;        // a message, at most; a multiple of 16. By rows: of an owner's part
  int16_t blocks;             // so many take part, from firstBlock on
  uint8_t firstBlock;         // 0 but for calls by lines, which share a launch side by side
  int8_t root;
  Collective collective;
  DataType type;
  ReduceOp op;
  GpuAlgorithm algorithm;
  int8_t reach;  // which of the launch's reaches is its; -1: none
  uint8_t padding[7];
};
static_assert(sizeof(GpuCall) == 64);
static_assert(kGpuMaxRanks <= INT8_MAX && kGpuMaxBlocks <= UINT8_MAX);

// A call's output on this rank, as each peer has mapped it, so that the peer may write there. A
// rank to which the call brings nothing agrees with nulls. REQUIRES: all addresses and a rank's
// block are multiples of 16 bytes.
struct GpuReach {
  std::byte* output[kGpuMaxRanks];  // by peer
  // Of a call in a graph: in GpuControl; 0 once the peers have it mapped no more. Else null.
  const uint32_t* alive;
};

// The parameter of every collective kernel. The grid has as many blocks as the call with the most,
// or as many lanes (kernels' apart.cuh).
struct GpuLaunch {
  GpuView view;
  int32_t callCount;
  int32_t reachCount;
  int32_t isBulk;  // of kernels with parts apart: copy engines move (kernels' bulk.cuh), since all
                   // buffers of all calls are aligned and go as they are
  int32_t padding;
  GpuCall calls[kGpuMaxCalls];
  GpuReach reaches[kGpuMaxReaches];
};

// A send whose bytes a copy engine carries, and the receive of such, as their kernels see them: one
// before the copy and one after.
enum class GpuEngine : uint8_t {
  kNone = 0,
  kGate = 1,  // receive: names its place; send: ends when the receiver has
  kTell = 2,  // send: tells the receiver that all has come, or sends it if that named no place
};

// A transfer of a collective between two ranks, in which only one sends: messages lie in the
// sender's own segment, and the receiver loads them from there (kernels/cuda/pulling.cuh).
enum class GpuPull : uint8_t {
  kNone = 0,
  kHalf = 1,  // of the bytes, by the second half of the blocks; the first half push
  kAll = 2,
};

// One send, receive or local copy of a group, or part of a collective of two ranks. At most one
// send to and one receive from each peer in a launch: the k-th of a pair goes into the k-th launch,
// on both sides.
struct GpuTransfer {
  std::byte* buffer;        // kSend: read; kRecv: written; local copy: written
  const std::byte* source;  // local copy (peer == own rank): read; receive that folds: the own
                            // input; send by copy engines: where they write
  uint64_t bytes;
  uint32_t signature;  // of count and type
  int16_t peer;
  int16_t firstBlock;  // of the grid
  int16_t blocks;      // this transfer's; its block j uses ring j of the pair
  bool isSend;
  GpuMessages messages;
  bool tellsPlace;  // the receiver says first whether the sender can write to its buffer
  bool isInPlace;   // what comes goes where a send of the launch reads: GpuControl::through
  GpuPull pull;     // in up to kGpuMaxRings blocks; by halves in as many
  GpuEngine engine;
  std::byte* reach;       // receive that tells: the buffer as the sender has mapped it, or null
  const uint32_t* alive;  // as GpuReach::alive
};
static_assert(sizeof(GpuTransfer) == 56);

// The parameter of the transfer kernels.
struct GpuTransfers {
  GpuView view;
  GpuCall reduction;  // of transfers that fold: type, operation and scalar, nothing else
  int32_t transferCount;
  int32_t padding;
  GpuTransfer transfers[kGpuMaxTransfers];
};

static_assert(std::is_trivially_copyable_v<GpuLaunch> &&
              std::is_trivially_copyable_v<GpuTransfers>);
static_assert(sizeof(GpuLaunch) <= 4096 && sizeof(GpuTransfers) <= 4096);

}  // namespace tutti::wire
