// The rings of slots between this rank's block and the same block of each peer: thread p of the
// block keeps the ring pair with rank p, all threads move the data.
//
// mark[b][p][slot]: written by rank p, after its block's stores into the slot, which a block
// barrier
//   and a system-wide fence put before it; read here by thread p with acquire, and a block barrier
//   hands that on to all threads. It holds the message's number + 1, so what was in the slot before
//   is never taken for it, and the call's signature. 32 bits of the number, compared for equality;
//   the slot's last one was kGpuSlotCount less. A flag in the data would cost half the bytes.
// credit[b][p]: written by rank p once its block is through with a message (a barrier after the
//   loads), read here by thread p before it fills the slot again. Relaxed: loads that have returned
//   cannot see later stores. Grows by one a message, compared modulo 2^32. It is sent only where
//   the call at hand needs it, and at the start of every call: a store at the end of a kernel would
//   delay the kernel's end by a trip.
// counters: local, written by thread p at the end of a call; so a replayed graph goes on where the
//   last launch stopped.
#pragma once

#include "kernels/cuda/session.cuh"

namespace tutti::kernels::cuda {

// Where the messages at hand lie; written by thread p for rank p, between two barriers.
struct RingTable {
  std::byte* out[2][wire::kGpuMaxRanks];  // slots to fill: first and second stage
  const std::byte* in[2][wire::kGpuMaxRanks];
};

// Staging of the messages from rank `from` in rank `at`'s segment, for ring `ring`.
__device__ __forceinline__ std::byte* slotOf(const GpuView& view, int at, int from, int ring,
                                             uint64_t number) {
  const size_t source = static_cast<size_t>(from < at ? from : from - 1);
  const size_t slot =
      (source * wire::kGpuMaxBlocks + static_cast<size_t>(ring)) * wire::kGpuSlotCount +
      number % wire::kGpuSlotCount;
  return view.segments[at] + wire::kGpuStagingOffset + slot * wire::gpuSlotBytes(view.rankCount);
}

// One thread's view of the ring pair with one peer.
class Ring {
 public:
  // A send and a receive with one peer may be in the hands of two blocks: each keeps to its side.
  enum class Side : uint8_t { kBoth, kSends, kReceives };

  __device__ Ring(const GpuView& view, const Awaited& awaited, int ring, Side side)
      : view_(view), awaited_(awaited), ring_(ring), side_(side) {
    const GpuControl* own = controlOf(view, view.rank);
    const wire::GpuCounters& counters = own->counters[ring][awaited.peer];
    sent_ = loadRelaxed(&counters.sent);
    received_ = loadRelaxed(&counters.received);
    credit_ = static_cast<uint32_t>(loadRelaxed(&own->credit[ring][awaited.peer]));
  }

  // Tells the peer what is free, and how many messages will come in this call: the last ones need
  // no credit.
  __device__ void begin(uint64_t messages) {
    due_ = received_ + messages;
    if (side_ != Side::kSends) giveCredit();
  }

  // Waits until the slot after `ahead` others is free; null when that ended without.
  __device__ std::byte* awaitSlot(int ahead) {
    const uint64_t number = sent_ + static_cast<uint64_t>(ahead);
    const auto wanted = static_cast<uint32_t>(number - wire::kGpuSlotCount + 1);
    Patience patience;
    while (!hasReached(credit_, wanted)) {
      credit_ = static_cast<uint32_t>(
          loadRelaxed(&controlOf(view_, view_.rank)->credit[ring_][awaited_.peer]));
      if (!hasReached(credit_, wanted) && patience.isOver(view_, at(number))) return nullptr;
    }
    return slotOf(view_, awaited_.peer, view_.rank, ring_, number);
  }

  // After a barrier and a system-wide fence.
  __device__ void mark() {
    GpuControl* theirs = controlOf(view_, awaited_.peer);
    storeRelaxed(&theirs->mark[ring_][view_.rank][sent_ % wire::kGpuSlotCount],
                 stamped(awaited_.signature, sent_ + 1));
    ++sent_;
  }

  // Waits for the message after `ahead` others; null when that ended without.
  const __device__ std::byte* awaitMessage(int ahead) {
    const uint64_t number = received_ + static_cast<uint64_t>(ahead);
    const uint64_t* word =
        &controlOf(view_, view_.rank)->mark[ring_][awaited_.peer][number % wire::kGpuSlotCount];
    Patience patience;
    uint64_t seen = loadAcquire(word);
    while (static_cast<uint32_t>(seen) != static_cast<uint32_t>(number + 1)) {
      if (patience.isOver(view_, at(number))) return nullptr;
      seen = loadAcquire(word);
    }
    const auto theirs = static_cast<uint32_t>(seen >> 32);
    if (theirs != awaited_.signature) {
      report(view_, at(number), GpuFault::kMismatch, theirs);
      return nullptr;
    }
    return slotOf(view_, view_.rank, awaited_.peer, ring_, number);
  }

  // After a barrier: the block has read `count` messages.
  __device__ void take(int count) {
    received_ += static_cast<uint64_t>(count);
    if (count > 0 && received_ + wire::kGpuSlotCount <= due_ + static_cast<uint64_t>(count) - 1) {
      giveCredit();
    }
  }

  __device__ void save() const {
    wire::GpuCounters& counters = controlOf(view_, view_.rank)->counters[ring_][awaited_.peer];
    if (side_ != Side::kReceives) counters.sent = sent_;
    if (side_ != Side::kSends) counters.received = received_;
  }

 private:
  __device__ Awaited at(uint64_t number) const {
    Awaited awaited = awaited_;
    awaited.number = number;
    return awaited;
  }
  __device__ void giveCredit() const {
    storeRelaxed(&controlOf(view_, awaited_.peer)->credit[ring_][view_.rank],
                 static_cast<uint32_t>(received_));
  }

  const GpuView& view_;
  const Awaited awaited_;
  const int ring_;
  const Side side_;
  uint64_t sent_;
  uint64_t received_;
  uint64_t due_ = 0;
  uint32_t credit_;
};

}  // namespace tutti::kernels::cuda
