// Collectives of any length through rings of slots: of two ranks, and of more where outputs are
// shared; else those of more have their parts apart (apart.cuh).
//
// A call is cut into chunks; block b takes chunks b, b + blocks, … and has two pumps that run by
// themselves. The sender sends chunk k of the input (first stage) and, where the schedule has a
// second stage, copies chunk k - lag of what comes of it to the output. The worker folds or keeps
// chunk k of the first stage's messages and passes it on where there is a second stage. First and
// second stage have rings of their own.
//
// No deadlock. A pump that waits for step k's needs has told its peers of all steps before k, or is
// about to without a wait. Take the least step k that any worker waits in: what it needs is that
// all senders have sent chunk k, and (second stage, T slots a ring) that the message of k - T was
// collected, in some sender's step k - T + lag. A sender's step j up to k needs credit for chunk
// j - S (first stage, S slots), and what the workers made of chunk j - lag: of both the workers
// have told. This takes S >= 1, lag >= 1 and T >= lag; the longer, the less waits.
//
// In place, the worker's output is the sender's input: the worker waits until the sender is through
// with the chunk (SlotShared::sent).
//
// Where the ranks share their outputs (sharing.cuh), what only moves bytes, in one stage, goes
// there instead of into slots. Kernels of their own (kShares) do that on a rank that shares, since
// what both ways need costs registers: the others took 2 % longer with it (2026-11-22, 4 × H200).
#pragma once

#include "kernels/cuda/plain_stores.cuh"
#include "kernels/cuda/slot_movers.cuh"

namespace tutti::kernels::cuda {

// What no step writes stays zero: no peer, no bytes.
__device__ __forceinline__ void clearSteps(SlotShared& shared, bool sends) {
  auto* words = reinterpret_cast<uint32_t*>(&shared);
  for (uint32_t i = threadIdx.x; i < offsetof(SlotShared, pumps) / 4; i += blockDim.x) words[i] = 0;
  if (threadIdx.x != 0) return;
  for (Pump& pump : shared.pumps) clearPump(pump);
  shared.sent = sends ? 0 : kAllSent;
}

// All threads of the block: movers of the sender, movers of the worker, then opener and closer of
// the one and of the other. False when the communicator is over, to those at least.
template <int kMost, typename Policy>
__device__ __forceinline__ bool runPumps(const SlotCall& slots, SlotShared& shared) {
  const int thread = static_cast<int>(threadIdx.x);
  const int keeper = thread - 2 * kMovers;
  if (keeper < 0) {
    const Movers<kMost, Policy> movers(slots.call, slots.view,
                                       static_cast<uint32_t>(thread % kMovers));
    if (thread < kMovers) {
      move([&](const SlotStep& table) { movers.send(table); }, shared.sender, shared.pumps[0],
           PumpBarrier{1}, slots.senderSteps());
    } else {
      move([&](const SlotStep& table) { movers.work(table); }, shared.worker, shared.pumps[1],
           PumpBarrier{2}, slots.workerSteps());
    }
    return true;
  }
  const BlockProgress progress(shared.sent);
  const int lane = keeper % 32;
  const bool isOpener = keeper % kKeepers < kOpeners;
  if (keeper < kKeepers) {
    SenderKeeper<BlockProgress> sender(slots, progress, lane);
    if (!isOpener) return close(sender, shared.pumps[0], slots.senderSteps());
    const bool isFine =
        open(sender, shared.sender, shared.pumps[0], PumpBarrier{1}, slots.senderSteps());
    // The worker must not wait for a sender that gave up.
    if (!isFine && keeper == 0) atomicExch(&shared.sent, kAllSent);
    return isFine;
  }
  WorkerKeeper<Policy::kFolds, BlockProgress> worker(slots, progress, lane);
  if (!isOpener) return close(worker, shared.pumps[1], slots.workerSteps());
  return open(worker, shared.worker, shared.pumps[1], PumpBarrier{2}, slots.workerSteps());
}

// False, to all threads, when the communicator is over.
template <int kMost, typename Policy, bool kShares>
__device__ __forceinline__ bool runSlotCall(const wire::GpuLaunch& launch, const GpuCall& call,
                                            SlotShared& shared) {
  const GpuView& view = launch.view;
  GpuControl* own = controlOf(view, view.rank);
  const uint64_t epoch = loadRelaxed(&own->epoch[blockIdx.x]) + 1;
  const uint32_t dead = loadRelaxed(&own->dead);
  SlotCall slots(view, call, epoch, shared.sharing, static_cast<int>(blockIdx.x));
  clearSteps(shared, slots.sends());
  const int keeper = static_cast<int>(threadIdx.x) - 2 * kMovers;
  const bool isSpeaker = keeper >= 0 && keeper < kOpeners;
  bool isFine = dead == 0;
  if (isSpeaker && isFine) {
    if constexpr (kShares) {
      isFine = agree(launch, call, epoch, keeper, shared.sharing);
    } else {
      announce(view, call, keeper, {epoch, slots.lane});
    }
  }
  if (__syncthreads_and(isFine ? 1 : 0) == 0) return false;
  if (threadIdx.x == 0) own->epoch[blockIdx.x] = epoch;
  const bool isDirect = kShares && shared.sharing.isDirect;
  // Whose outputs this rank writes then, and who writes this rank's.
  const uint32_t written = slots.roles.sends;
  const uint32_t writers = slots.roles.receives;
  if (isDirect) slots.writeDirectly();
  isFine = true;
  if (kShares && isDirect && isPlain(call)) {
    storePlainly<kMost>(slots);
  } else {
    isFine = runPumps<kMost, Policy>(slots, shared);
  }
  if (__syncthreads_and(isFine ? 1 : 0) == 0) return false;
  if (!isDirect) return true;
  if (isSpeaker) isFine = finish(view, slots.awaited(keeper), written, writers, keeper);
  return __syncthreads_and(isFine ? 1 : 0) != 0;
}

}  // namespace tutti::kernels::cuda
