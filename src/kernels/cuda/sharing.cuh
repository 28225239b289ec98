// Calls that write to peers' outputs themselves, where all ranks have theirs mapped by all.
//
// Whether a call does is decided by its blocks: a rank that shares its output says so as it begins,
// in its word of `entered`, and only a rank that shares waits for the others' words. All see the
// same words, so all decide alike; a rank that does not share knows without waiting.
//
// outputs[set][b][p]: rank p's block b writes there, in this rank's segment, where this rank has
// p's
//   output mapped; read here by the warp that keeps the sender's rings once p's word of `entered`
//   says that p shares. Each half of the line is one store and carries 32 bits of the collective's
//   number, so nothing orders line and word. A stale line would have to be 2^32 collectives old.
// A word of a later collective stands for "does not share": whoever takes part in such a call ends
//   it only when all have (finished), so a rank that is further on did not.
// finished[b][p]: written by rank p's block b after its stores to this rank's output, behind a
// block
//   barrier and a system-wide fence; read here with acquire before the call ends. It holds 32 bits
//   of the collective's number, compared modulo 2^32, so a later one says as much.
// Nothing simpler: hosts that agreed on it would have to wait for each other at each call, and a
//   replayed graph has no host.
#pragma once

#include "kernels/cuda/session.cuh"

namespace tutti::kernels::cuda {

// Of a call, in shared memory.
struct Sharing {
  std::byte* outputs[wire::kGpuMaxRanks];  // peers', as this rank has them
  bool isDirect;
};

__device__ __forceinline__ bool isAlive(const uint32_t* alive) {
  return alive == nullptr || loadRelaxed(alive) != 0;
}

__device__ __forceinline__ void storeAddress(wire::GpuLine& line, const std::byte* address,
                                             uint64_t number) {
  const auto bits = reinterpret_cast<uint64_t>(address);
  storeLine(reinterpret_cast<uint4*>(&line),
            make_uint2(static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32)),
            static_cast<uint32_t>(number));
}

__device__ __forceinline__ std::byte* addressIn(const uint4& line) {
  return reinterpret_cast<std::byte*>(uint64_t{line.z} << 32 | line.x);
}

// Waits for the line of that number; false when that ended without.
__device__ __noinline__ bool awaitAddress(const GpuView& view, const wire::GpuLine& line,
                                          const Awaited& awaited, std::byte*& address) {
  const auto flag = static_cast<uint32_t>(awaited.number);
  Patience patience;
  for (;;) {
    const uint4 seen = loadLine(reinterpret_cast<const uint4*>(&line));
    if (seen.y == flag && seen.w == flag) {
      address = addressIn(seen);
      return true;
    }
    if (patience.isOver(view, awaited)) return false;
  }
}

// Waits until the peer has begun the call, which has to be the same one, and finds out whether and
// where the peer takes what it is sent. The line is looked at with each look at the word: as a rule
// both are there, and a load behind another takes as long as the first.
__device__ __noinline__ bool awaitSharer(const GpuView& view, const Awaited& awaited,
                                         bool& doesShare, std::byte*& output) {
  const uint64_t* word = entryOf(view, awaited.epoch, awaited.peer, awaited.block);
  const GpuControl* own = controlOf(view, view.rank);
  const wire::GpuLine& line = own->outputs[awaited.epoch & 1][blockIdx.x][awaited.peer];
  const uint32_t flag = awaited.epoch;
  Patience patience;
  for (;;) {
    const uint64_t seen = loadRelaxed(word);
    const uint4 told = loadLine(reinterpret_cast<const uint4*>(&line));
    if (hasReached(static_cast<uint32_t>(seen), flag)) {
      const bool isThis = static_cast<uint32_t>(seen) == flag;
      if (isThis && signatureIn(seen) != awaited.signature) {
        report(view, awaited, GpuFault::kMismatch, signatureIn(seen));
        return false;
      }
      doesShare = isThis && (seen >> 32 & wire::kGpuShares) != 0;
      if (!doesShare) return true;
      if (told.y != flag || told.w != flag) return awaitAddress(view, line, awaited, output);
      output = addressIn(told);
      return true;
    }
    if (patience.isOver(view, awaited)) return false;
  }
}

// Announces the call and finds out whether it is a direct one. By one warp, lane p for rank p;
// false when the communicator is over.
__device__ __noinline__ bool agree(const wire::GpuLaunch& launch, const GpuCall& call,
                                   uint64_t epoch, int lane, Sharing& sharing) {
  constexpr unsigned kAll = 0xffffffff;
  const GpuView& view = launch.view;
  const wire::GpuReach* reach = call.reach >= 0 ? launch.reaches + call.reach : nullptr;
  // One lane looks, since the word may change.
  const bool isShared = lane == 0 && reach != nullptr && isAlive(reach->alive);
  const bool shares = __shfl_sync(kAll, isShared ? 1 : 0, 0) != 0;
  const bool isPeer = lane < view.rankCount && lane != view.rank;
  if (shares && isPeer) {
    storeAddress(controlOf(view, lane)->outputs[epoch & 1][blockIdx.x][view.rank],
                 reach->output[lane], epoch);
  }
  announce(view, call, lane, {epoch, static_cast<int>(blockIdx.x), shares});
  if (!shares) {
    if (lane == 0) sharing.isDirect = false;
    return true;
  }

  const auto block = static_cast<int>(blockIdx.x);
  const Awaited awaited{lane, epoch, call.signature, call.collective, static_cast<uint32_t>(epoch),
                        block};
  bool isFine = true;
  bool doesShare = true;
  if (isPeer) isFine = awaitSharer(view, awaited, doesShare, sharing.outputs[lane]);
  if (__all_sync(kAll, isFine ? 1 : 0) == 0) return false;
  const bool isDirect = __all_sync(kAll, doesShare ? 1 : 0) != 0;
  if (lane == 0) sharing.isDirect = isDirect;
  return true;
}

// The end of a direct call, after a barrier of the block: tells the ranks of `written` that this
// block is through with their outputs, and waits for those of `writers`. By the same warp.
__device__ __noinline__ bool finish(const GpuView& view, const Awaited& call, uint32_t written,
                                    uint32_t writers, int lane) {
  fenceSystem();
  if ((written >> lane & 1) != 0) {
    storeRelaxed(&controlOf(view, lane)->finished[blockIdx.x][view.rank], call.epoch);
  }
  if ((writers >> lane & 1) == 0) return true;
  const uint64_t* word = &controlOf(view, view.rank)->finished[blockIdx.x][lane];
  Patience patience;
  while (!hasReached(static_cast<uint32_t>(loadAcquire(word)), call.epoch)) {
    if (patience.isOver(
            view, {lane, call.epoch, call.signature, call.collective, call.epoch, call.block}))
      return false;
  }
  return true;
}

}  // namespace tutti::kernels::cuda
