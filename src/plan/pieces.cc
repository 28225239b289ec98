#include "plan/pieces.h"

#include <algorithm>

#include "base/units.h"
#include "wire/link.h"

namespace tutti::plan {
namespace {

// Pieces of a chunk move through a chain of ranks like trucks on a road: at least this many keep
// every rank busy, unless they would get shorter than what one message costs.
constexpr size_t kWantedPieces = 8;
constexpr size_t kMinPieceBytes = 8_KiB;
// Between hosts a piece costs its program's trips, which do not overlap with the next piece's:
// all-reduce of 64 KiB in 4 pieces took 1.7 times what Open MPI takes over TCP (loopback, 2 ranks,
// 2 CPUs of an Intel Xeon VM, busy, 2026-11-22).
constexpr size_t kMinPieceBytesBetweenHosts = 128_KiB;

// From kDirectMinBytes on, reading a message from the sender's buffer beats a copy into a slot and
// out of it; pieces are as long as keeps a folded piece in the caches until its readers come.
// Threads of one process, 2 and 4 ranks on 2 CPUs of an EPYC VM, 2026-11-20: at 16 KiB references
// take 1.0-1.6 times as long, at 128 KiB 0.4-0.9, at 8 MiB 0.5-0.9.
constexpr size_t kDirectMaxPieceBytes = 512_KiB;

// By process_vm_readv, 2 ranks on 2 CPUs of an Intel Xeon VM, 2026-11-22: of the time of copies,
// blocks of 8 KiB take all, of 12 KiB 0.6 to 1.0, of 16 KiB 0.6 to 0.8. As copies, against pieces
// of 8 KiB, calls of 64 and 256 KiB: all-gather 0.75 to 0.9 of the time, all-reduce 0.77 to 1.0,
// broadcast 0.84 to 1.1, sendrecv 0.87 to 0.96 (AMD EPYC VM, family 26, 2026-11-27).
constexpr size_t kProcessMinPieceBytes = 64_KiB;

size_t wantedPieceBytes(size_t chunkBytes) {
  return roundUp(divideUp(chunkBytes, kWantedPieces), kCacheLineBytes);
}

}  // namespace

// Where ranks share CPUs, pieces would overlap with nothing, and each could cost a turn of the
// scheduler a rank.
size_t pieceBytesFor(size_t chunkBytes, const Piecing& piecing) {
  if (piecing.isCrowded) return piecing.slotBytes;
  const size_t least = piecing.isOneHost ? kMinPieceBytes : kMinPieceBytesBetweenHosts;
  return std::clamp<size_t>(wantedPieceBytes(chunkBytes),
                            std::min<size_t>(least, piecing.slotBytes), piecing.slotBytes);
}

// Short enough for a slot, since some senders copy; long enough that a system call's 0.5 us a piece
// do not show, and that both ends copy a part of it where only one of them has something to do.
size_t processPieceBytes(size_t chunkBytes, const Piecing& piecing) {
  return std::min<size_t>(std::max(pieceBytesFor(chunkBytes, piecing), kProcessMinPieceBytes),
                          piecing.slotBytes);
}

size_t directPieceBytes(size_t chunkBytes) {
  return std::clamp(wantedPieceBytes(chunkBytes), kDirectMinBytes, kDirectMaxPieceBytes);
}

// Many hosts' parts are shorter, so that a head's memory for them is bounded.
size_t networkPieceBytes(size_t slotBytes, size_t hostCount) {
  constexpr size_t kMostSetBytes = 2_MiB;
  constexpr size_t kLeast = 4_KiB;
  const size_t share = roundUp(divideUp(kMostSetBytes, hostCount), kCacheLineBytes);
  return std::min(std::max(share, kLeast), slotBytes);
}

size_t networkSetBytes(size_t slotBytes, size_t hostCount) {
  return networkPieceBytes(slotBytes, hostCount) * hostCount;
}

}  // namespace tutti::plan
