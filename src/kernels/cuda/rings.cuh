// The rings of slots between this rank and a peer: one thread of a block keeps each end, others
// move the data.
//
// mark[r][p][slot]: written by rank p, after its block's stores into the slot, which a block
// barrier
//   and a system-wide fence put before it; read here with acquire by the thread that keeps the
//   ring, and a block barrier hands that on to the threads that read the slot. It holds the
//   message's number + 1, so what was in the slot before is never taken for it, and the call's
//   signature. 32 bits of the number, compared for equality; the slot's last one was as many less
//   as a ring has slots. A flag in the data would cost half the bytes.
// credit[r][p]: written by rank p once its block is through with a message (a barrier after the
//   loads), read here before the slot is filled again. Relaxed: loads that have returned cannot see
//   later stores. Grows by one a message, compared modulo 2^32. It is sent at the start of every
//   call and for all of a call's messages but the last: a store at the end of a kernel would delay
//   the kernel's end by a trip.
// counters: local, written at the end of a call; so a replayed graph goes on where the last launch
//   stopped.
//
// A pulled transfer's messages lie in the slots of the other direction (pulling.cuh): rings j and
// j + kGpuMaxBlocks have half of ring j's each.
#pragma once

#include "kernels/cuda/session.cuh"

namespace tutti::kernels::cuda {

static_assert(2 * wire::kGpuPulledSlots <= wire::gpuFirstSlots(2) &&
              2 * wire::kGpuMaxBlocks <= wire::kGpuMaxRings);

__device__ __forceinline__ bool isFirstStage(int ring) { return ring < wire::kGpuMaxBlocks; }

__device__ __forceinline__ uint32_t slotCount(const GpuView& view, int ring, bool isPulled) {
  if (isPulled) return wire::kGpuPulledSlots;
  return isFirstStage(ring) ? wire::gpuFirstSlots(view.rankCount)
                            : wire::gpuSecondSlots(view.rankCount);
}

// By constants: a division by what is known only here takes longer than a poll.
__device__ __forceinline__ uint64_t slotNumber(const GpuView& view, int ring, uint64_t message,
                                               bool isPulled = false) {
  if (isPulled) return message % wire::kGpuPulledSlots;
  if (view.rankCount <= 2) return message % wire::gpuFirstSlots(2);
  const bool isFirst = isFirstStage(ring);
  if (view.rankCount <= 4) {
    return isFirst ? message % wire::gpuFirstSlots(4) : message % wire::gpuSecondSlots(4);
  }
  return isFirst ? message % wire::gpuFirstSlots(8) : message % wire::gpuSecondSlots(8);
}

// Where a message lies among the slots of a pair.
__device__ __forceinline__ size_t slotPlace(const GpuView& view, int ring, uint64_t message,
                                            bool isPulled) {
  const auto first = static_cast<size_t>(wire::gpuFirstSlots(view.rankCount));
  const auto second = static_cast<size_t>(wire::gpuSecondSlots(view.rankCount));
  size_t ofRing = isFirstStage(ring)
                      ? ring * first
                      : wire::kGpuMaxBlocks * first + (ring - wire::kGpuMaxBlocks) * second;
  if (isPulled && !isFirstStage(ring))
    ofRing = (ring - wire::kGpuMaxBlocks) * first + wire::kGpuPulledSlots;
  return ofRing + slotNumber(view, ring, message, isPulled);
}

// Staging of a message from rank `from` in rank `at`'s segment.
__device__ __forceinline__ std::byte* slotOf(const GpuView& view, int at, int from, size_t place) {
  const auto source = static_cast<size_t>(from < at ? from : from - 1);
  const size_t slot = source * wire::gpuPairSlots(view.rankCount) + place;
  return view.segments[at] + wire::gpuStagingOffset(view.rankCount) +
         slot * wire::gpuSlotBytes(view.rankCount);
}

// The end that sends. Messages are numbered from 0 in each call.
class OutRing {
 public:
  OutRing() = default;
  __device__ OutRing(const GpuView& view, const Awaited& awaited, int ring, bool isPulled = false)
      : awaited_(awaited), ring_(ring), isPulled_(isPulled) {
    const GpuControl* own = controlOf(view, view.rank);
    base_ = loadRelaxed(&own->counters[ring][awaited.peer].sent);
    credit_ = static_cast<uint32_t>(loadRelaxed(&own->credit[ring][awaited.peer]));
  }

  // Loads the credit anew where the message will need it: so that this and another wait overlap.
  __device__ __forceinline__ void refresh(const GpuView& view, int64_t message) {
    if (!hasReached(credit_, wanted(view, message))) {
      credit_ = static_cast<uint32_t>(
          loadRelaxed(&controlOf(view, view.rank)->credit[ring_][awaited_.peer]));
    }
  }

  // Waits until the message's slot is free; null when that ended without.
  __device__ std::byte* awaitSlot(const GpuView& view, int64_t message) {
    const uint64_t number = base_ + static_cast<uint64_t>(message);
    const uint32_t least = wanted(view, message);
    Patience patience;
    while (!hasReached(credit_, least)) {
      credit_ = static_cast<uint32_t>(
          loadRelaxed(&controlOf(view, view.rank)->credit[ring_][awaited_.peer]));
      awaited_.number = number;
      if (!hasReached(credit_, least) && patience.isOver(view, awaited_)) return nullptr;
    }
    const size_t place = slotPlace(view, ring_, number, isPulled_);
    return isPulled_ ? slotOf(view, view.rank, awaited_.peer, place)
                     : slotOf(view, awaited_.peer, view.rank, place);
  }

  // After a barrier and a system-wide fence.
  __device__ void mark(const GpuView& view, int64_t message) {
    const uint64_t number = base_ + static_cast<uint64_t>(message);
    GpuControl* theirs = controlOf(view, awaited_.peer);
    storeRelaxed(&theirs->mark[ring_][view.rank][slotNumber(view, ring_, number, isPulled_)],
                 stamped(awaited_.signature, number + 1));
  }

  __device__ void save(const GpuView& view, int64_t messages) const {
    controlOf(view, view.rank)->counters[ring_][awaited_.peer].sent =
        base_ + static_cast<uint64_t>(messages);
  }

 private:
  __device__ __forceinline__ uint32_t wanted(const GpuView& view, int64_t message) const {
    return static_cast<uint32_t>(base_ + static_cast<uint64_t>(message) + 1) -
           slotCount(view, ring_, isPulled_);
  }

  Awaited awaited_;
  int ring_;
  bool isPulled_ = false;
  uint64_t base_;
  uint32_t credit_;
};

// The end that receives.
class InRing {
 public:
  InRing() = default;
  // `messages` will come in this call.
  __device__ InRing(const GpuView& view, const Awaited& awaited, int ring, int64_t messages,
                    bool isPulled = false)
      : awaited_(awaited), ring_(ring), isPulled_(isPulled), messages_(messages) {
    base_ = loadRelaxed(&controlOf(view, view.rank)->counters[ring][awaited.peer].received);
  }

  // By whoever takes the messages, before the first.
  __device__ void begin(const GpuView& view) const { giveCredit(view, 0); }

  // Waits for the message; null when that ended without.
  const __device__ std::byte* await(const GpuView& view, int64_t message) {
    const uint64_t number = base_ + static_cast<uint64_t>(message);
    const uint64_t slot = slotNumber(view, ring_, number, isPulled_);
    const uint64_t* word = &controlOf(view, view.rank)->mark[ring_][awaited_.peer][slot];
    awaited_.number = number;
    Patience patience;
    uint64_t seen = loadAcquire(word);
    while (static_cast<uint32_t>(seen) != static_cast<uint32_t>(number + 1)) {
      if (patience.isOver(view, awaited_)) return nullptr;
      seen = loadAcquire(word);
    }
    const auto theirs = static_cast<uint32_t>(seen >> 32);
    if (theirs != awaited_.signature) {
      report(view, awaited_, GpuFault::kMismatch, theirs);
      return nullptr;
    }
    const size_t place = slotPlace(view, ring_, number, isPulled_);
    return isPulled_ ? slotOf(view, awaited_.peer, view.rank, place)
                     : slotOf(view, view.rank, awaited_.peer, place);
  }

  // After a barrier: the block has read the message.
  __device__ void take(const GpuView& view, int64_t message) const {
    if (message + 1 < messages_) giveCredit(view, message + 1);
  }

  __device__ void save(const GpuView& view) const {
    controlOf(view, view.rank)->counters[ring_][awaited_.peer].received =
        base_ + static_cast<uint64_t>(messages_);
  }

 private:
  __device__ void giveCredit(const GpuView& view, int64_t taken) const {
    storeRelaxed(&controlOf(view, awaited_.peer)->credit[ring_][view.rank],
                 static_cast<uint32_t>(base_ + static_cast<uint64_t>(taken)));
  }

  Awaited awaited_;
  int ring_;
  bool isPulled_ = false;
  int64_t messages_;
  uint64_t base_;
};

}  // namespace tutti::kernels::cuda
