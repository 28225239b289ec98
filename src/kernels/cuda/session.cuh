// What every collective kernel has in common: which rank talks to which, the beginning of a call,
// and waits that end.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/memory.cuh"
#include "wire/gpu_work.h"

namespace tutti::kernels::cuda {

using wire::GpuCall;
using wire::GpuControl;
using wire::GpuFault;
using wire::GpuView;

__device__ __forceinline__ GpuControl* controlOf(const GpuView& view, int rank) {
  return reinterpret_cast<GpuControl*>(view.segments[rank]);
}

__device__ __forceinline__ GpuControl* ownControl(const GpuView& view) {
  return controlOf(view, view.rank);
}
__device__ __forceinline__ GpuControl* ownControl(const wire::GpuProgramView& view) {
  return reinterpret_cast<GpuControl*>(view.own);
}

// Is `value` (32 bits of a counter) at or past `wanted`? Right while they are less than 2^31 apart.
__device__ __forceinline__ bool hasReached(uint32_t value, uint32_t wanted) {
  return static_cast<int32_t>(value - wanted) >= 0;
}

__device__ __forceinline__ uint64_t stamped(uint32_t signature, uint64_t number) {
  return uint64_t{signature} << 32 | static_cast<uint32_t>(number);
}

// Of a word of `entered`.
__device__ __forceinline__ uint32_t signatureIn(uint64_t entered) {
  return static_cast<uint32_t>(entered >> 32) & ~wire::kGpuShares;
}

// ---- waits
// ---------------------------------------------------------------------------------------

// What a thread waits for, for the report when it does not come.
struct Awaited {
  int peer;
  uint64_t number;
  uint32_t signature;
  Collective collective;
  uint32_t epoch;  // the block's collective at hand, modulo 2^32; sends and receives have none
  int block;       // of `entered`: the own one's number, or lane (apart.cuh)
};

// First one in writes; the communicator is over, so nobody clears it. View: GpuView, or that of a
// program.
template <typename View>
__device__ __noinline__ void report(const View& view, const Awaited& awaited, GpuFault fault,
                                    uint32_t theirs) {
  GpuControl* own = ownControl(view);
  if (atomicExch(&own->dead, 1u) != 0) return;
  volatile wire::GpuError* error = view.error;
  error->peer = awaited.peer;
  error->block = awaited.block;
  error->collective = static_cast<uint32_t>(awaited.collective);
  error->number = awaited.number;
  error->ours = awaited.signature;
  error->theirs = theirs;
  fenceSystem();
  error->fault = static_cast<uint32_t>(fault);
  fenceSystem();
}

// Counts a wait's polls and now and then looks whether it should end: another thread failed, the
// host aborted, time is up. Reading host memory takes longer than a poll, so it is rare.
class Patience {
 public:
  template <typename View>
  __device__ bool isOver(const View& view, const Awaited& awaited) {
    if ((++polls_ & 255) != 0) return false;
    return look(view, awaited);
  }
  // True after each of those looks.
  __device__ __forceinline__ bool hasLooked() const { return (polls_ & 255) == 0; }

 private:
  template <typename View>
  __device__ __noinline__ bool look(const View& view, const Awaited& awaited) {
    if (loadRelaxed(&ownControl(view)->dead) != 0) return true;
    if (loadRelaxed(view.abortWord) != 0) {
      report(view, awaited, GpuFault::kAborted, 0);
      return true;
    }
    if (seesOtherCall(view, awaited)) return true;
    if (view.timeoutNs == 0) return false;
    const uint64_t now = nanoseconds();
    if (start_ == 0) start_ = now;
    if (now - start_ < view.timeoutNs) return false;
    report(view, awaited, GpuFault::kTimedOut, 0);
    return true;
  }

  // A message of a program tells by itself.
  static __device__ bool seesOtherCall(const wire::GpuProgramView&, const Awaited&) {
    return false;
  }
  // The awaited rank's block has begun the collective of our number, but another one.
  static __device__ bool seesOtherCall(const GpuView& view, const Awaited& awaited) {
    if (awaited.epoch == 0) return false;
    const GpuControl* own = controlOf(view, view.rank);
    const uint64_t seen =
        loadRelaxed(&own->entered[awaited.epoch & 1][awaited.block][awaited.peer]);
    const uint32_t theirs = signatureIn(seen);
    if (static_cast<uint32_t>(seen) != awaited.epoch) return false;
    if (theirs == awaited.signature) return false;
    report(view, awaited, GpuFault::kMismatch, theirs);
    return true;
  }

  uint32_t polls_ = 0;
  uint64_t start_ = 0;
};

// ---- who talks to whom
// ---------------------------------------------------------------------------

// A call as one rank sees it, in two stages: what it sends of its input and to whom, what it makes
// of what comes, whom it passes that on to. Bit p of a mask is rank p.
struct Roles {
  uint32_t sends = 0;        // first stage, from my input
  uint32_t receives = 0;     // first stage
  uint32_t forwards = 0;     // second stage: what I made of the first
  uint32_t collects = 0;     // second stage, straight to my output
  bool works = false;        // I fold (or keep) what comes in the first stage
  bool writes = false;       // … into my output
  bool copiesOwn = false;    // moves: my own block goes from input to output
  bool inputByPeer = false;  // my input has a block a rank
  bool outputByPeer = false;
  bool isSplit = false;  // the vector has a part for each owner (two-shot)
  int parts = 1;
};

__device__ __forceinline__ uint32_t bit(int rank) { return 1u << rank; }

__device__ inline Roles rolesOf(const GpuCall& call, int me, int rankCount) {
  const uint32_t others = (bit(rankCount) - 1) & ~bit(me);
  const int root = call.root;
  const bool isRoot = me == root;
  const bool isTwoShot = call.algorithm == wire::GpuAlgorithm::kTwoShot;
  Roles roles;
  roles.isSplit = isTwoShot;
  switch (call.collective) {
    case Collective::kAllReduce:
      roles.sends = roles.receives = others;
      roles.works = roles.writes = true;
      if (isTwoShot) roles.forwards = roles.collects = others;
      roles.parts = isTwoShot ? rankCount : 1;
      break;
    case Collective::kReduceScatter:
      roles.sends = roles.receives = others;
      roles.works = roles.writes = roles.inputByPeer = true;
      break;
    case Collective::kReduce:
      if (isTwoShot) {  // every rank but the root owns a part
        roles.sends = others & ~bit(root);
        roles.receives = isRoot ? 0 : others;
        roles.forwards = isRoot ? 0 : bit(root);
        roles.collects = isRoot ? others : 0;
        roles.works = !isRoot;
        roles.parts = rankCount - 1;
      } else {
        roles.sends = isRoot ? 0 : bit(root);
        roles.receives = isRoot ? others : 0;
        roles.works = roles.writes = isRoot;
      }
      break;
    case Collective::kBroadcast:
      roles.sends = isRoot ? others : 0;
      roles.receives = isRoot ? 0 : bit(root);
      roles.works = roles.writes = !isRoot;
      roles.copiesOwn = isRoot;
      if (isTwoShot) {
        roles.forwards = roles.collects = isRoot ? 0 : others & ~bit(root);
        roles.parts = rankCount - 1;
      }
      break;
    case Collective::kAllGather:
    case Collective::kAllToAll:
      roles.sends = roles.receives = others;
      roles.works = roles.writes = roles.copiesOwn = roles.outputByPeer = true;
      roles.inputByPeer = call.collective == Collective::kAllToAll;
      break;
    case Collective::kGather:
      roles.sends = isRoot ? 0 : bit(root);
      roles.receives = isRoot ? others : 0;
      roles.works = roles.writes = roles.copiesOwn = isRoot;
      roles.outputByPeer = true;
      break;
    case Collective::kScatter:
      roles.sends = isRoot ? others : 0;
      roles.receives = isRoot ? 0 : bit(root);
      roles.works = roles.writes = !isRoot;
      roles.copiesOwn = isRoot;
      roles.inputByPeer = true;
      break;
    case Collective::kSend:
    case Collective::kRecv: break;  // transfers.cuh
  }
  return roles;
}

// Which part of a split vector a rank owns. The root of a broadcast or reduction owns none: it has
// the most to do already.
__device__ __forceinline__ int partOf(const GpuCall& call, int rank, int rankCount) {
  if (call.collective == Collective::kAllReduce) return rank;
  const int distance = rank - call.root - 1;
  return distance < 0 ? distance + rankCount : distance;
}

// ---- the beginning of a call
// ---------------------------------------------------------------------

// A kernel may be on the device before what is ahead of it on the stream has ended
// (GpuChoice::startsEarly): it waits here, and then lets the next one come. In this order, so that
// one is waiting at most. A call of 1 KB took 4.4 µs instead of 5.0 for it, 0.3 less in a graph (2
// × H200, 2026-11-21). Does nothing where nobody asked for it.
__device__ __forceinline__ void awaitStream() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// entered[set][b][p]: written by rank p's block b when it begins its collective number e, into the
//   set e & 1 of every peer; read here by thread p of block b.
// It says: p's block b has finished everything before e. The store is relaxed: what p read before
//   had returned before this kernel began (or before a block barrier), and it orders no data.
// Its reader then writes lines of set e+1 & 1 to p, the ones p last read in e-1. So one rank is at
//   most one collective ahead of another that it writes to, and two sets of lines are enough.
// 32 bits of e, compared modulo 2^32: at most two values apart. The signature rides along.
// Nothing simpler: a broadcast's root hears nothing back from the data itself.
// `shares`: sharing.cuh.
struct Announcement {
  uint64_t epoch;
  int block;  // or lane
  bool shares = false;
};
__device__ inline void announce(const GpuView& view, const GpuCall& call, int peer,
                                const Announcement& what) {
  if (peer >= view.rankCount || peer == view.rank) return;
  storeRelaxed(&controlOf(view, peer)->entered[what.epoch & 1][what.block][view.rank],
               stamped(call.signature | (what.shares ? wire::kGpuShares : 0), what.epoch));
}

const __device__ __forceinline__ uint64_t* entryOf(const GpuView& view, uint64_t epoch, int peer,
                                                   int block) {
  return &controlOf(view, view.rank)->entered[epoch & 1][block][peer];
}

// Waits until `peer` has begun `epoch` or a later one; `seen` is what its word held a while ago.
__device__ inline bool awaitEntry(const GpuView& view, const Awaited& awaited, uint64_t seen) {
  const uint64_t* word = entryOf(view, awaited.number, awaited.peer, awaited.block);
  Patience patience;
  while (!hasReached(static_cast<uint32_t>(seen), static_cast<uint32_t>(awaited.number))) {
    if (patience.isOver(view, awaited)) return false;
    seen = loadRelaxed(word);
  }
  return true;
}

// The same, and `peer` must run the same call, where its word still tells.
__device__ inline bool awaitSameCall(const GpuView& view, const Awaited& awaited, uint64_t seen) {
  if (!awaitEntry(view, awaited, seen)) return false;
  seen = loadRelaxed(entryOf(view, awaited.number, awaited.peer, awaited.block));
  const uint32_t theirs = signatureIn(seen);
  const bool isThis = static_cast<uint32_t>(seen) == static_cast<uint32_t>(awaited.number);
  if (!isThis || theirs == awaited.signature) return true;
  report(view, awaited, GpuFault::kMismatch, theirs);
  return false;
}

}  // namespace tutti::kernels::cuda
