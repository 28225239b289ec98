// Transfers whose receiver loads the messages: from slots of the sender's own segment, which are
// those of the other direction. So a sender's fence is behind local stores alone; behind stores to
// the other GPU it is a trip, and a GPU that only sends is bound by its blocks' fences
// (docs/results/notes.md). Up to some length half of the blocks do so and the others push half of
// the bytes (wire::GpuPull): neither way is then bound by what bounds it alone.
//
// Nothing of the other direction may be in those slots. What the receiver sent before, this rank
// has taken out in the call that it was for; what it sends later finds the slots read. For ranks
// whose orders of calls differ that is no proof. So before a call ends, the sender waits until the
// receiver's block has begun the same collective, by the words of `entered` (session.cuh), and
// finds no message in the ring then. Both announce it: it counts as a collective like any. Not at
// the beginning, where the wait and the first message's way took 6 µs of 194 (reduce of 64 MB).
#pragma once

#include "kernels/cuda/rings.cuh"
#include "kernels/cuda/session.cuh"

namespace tutti::kernels::cuda {

// By one thread of a block. Does nothing for a transfer that is pushed.
class Pulling {
 public:
  __device__ explicit Pulling(bool isPulled) : isPulled_(isPulled) {}

  // REQUIRES: block `block` of the transfer is that of the grid.
  __device__ void begin(const GpuView& view, const Awaited& awaited, int block) {
    if (!isPulled_) return;
    epoch_ = loadRelaxed(&controlOf(view, view.rank)->epoch[block]) + 1;
    storeRelaxed(&controlOf(view, awaited.peer)->entered[epoch_ & 1][block][view.rank],
                 stamped(awaited.signature, epoch_));
  }

  // After the last message. False when that ended without.
  template <bool kSends>
  __device__ bool end(const GpuView& view, Awaited awaited, int block) const {
    if (epoch_ == 0) return true;
    if (kSends) {
      awaited.number = epoch_;
      awaited.epoch = static_cast<uint32_t>(epoch_);
      if (!awaitSameCall(view, awaited, 0)) return false;
      fenceSystem();
      if (!isDrained(view, awaited, block)) return false;
    }
    controlOf(view, view.rank)->epoch[block] = epoch_;
    return true;
  }

 private:
  // Of the other direction's ring whose slots these are.
  static __device__ bool isDrained(const GpuView& view, const Awaited& awaited, int block) {
    const int ring = block % wire::kGpuMaxBlocks;
    const GpuControl* own = controlOf(view, view.rank);
    const uint64_t next = loadRelaxed(&own->counters[ring][awaited.peer].received);
    const uint64_t seen = loadRelaxed(&own->mark[ring][awaited.peer][slotNumber(view, ring, next)]);
    if (static_cast<uint32_t>(seen) != static_cast<uint32_t>(next + 1)) return true;
    report(view, awaited, GpuFault::kMismatch, static_cast<uint32_t>(seen >> 32));
    return false;
  }

  const bool isPulled_;
  uint64_t epoch_ = 0;
};

}  // namespace tutti::kernels::cuda
