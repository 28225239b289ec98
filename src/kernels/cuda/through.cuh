// Of a transfer in place: a receiving block writes what the sending block of the same number is to
// read, chunk by chunk in the same order, and waits until that one is through with each.
//
// through[b]: written by the sending block b after a barrier behind its movers' loads, polled by
//   the receiving block b of the same launch, which has a barrier between that and its movers'
//   stores. Relaxed and acquire. Grows by one a message from 0; the receiving block, which waits
//   for the last too, sets it to 0 again at its end, so that the next launch, a replay too, finds
//   it so.
#pragma once

#include "kernels/cuda/session.cuh"

namespace tutti::kernels::cuda {

// By one thread of either block. Does nothing for a transfer that is not in place.
class Through {
 public:
  __device__ Through(const GpuView& view, const wire::GpuTransfer& transfer, int block)
      : word_(transfer.isInPlace ? &controlOf(view, view.rank)->through[block] : nullptr) {}

  __device__ __forceinline__ void raise(int64_t step) const {
    if (word_ != nullptr) storeRelaxed(word_, static_cast<uint64_t>(step) + 1);
  }

  // False when that ended without.
  __device__ __forceinline__ bool await(const GpuView& view, const Awaited& awaited,
                                        int64_t step) const {
    if (word_ == nullptr) return true;
    Patience patience;
    while (loadAcquire(word_) <= static_cast<uint64_t>(step)) {
      if (patience.isOver(view, awaited)) return false;
    }
    return true;
  }

  __device__ __forceinline__ void reset() const {
    if (word_ != nullptr) storeRelaxed(word_, uint64_t{0});
  }

 private:
  uint64_t* const word_;
};

}  // namespace tutti::kernels::cuda
