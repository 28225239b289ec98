// What sends and receives without slots have in common, by lines (transfer_lines.cuh) and by rows
// (transfer_rows.cuh): a block's share is one message of its ring, which slots, lines and rows
// count together.
//
// mark (rings.cuh) is written as well, before the bytes, but orders nothing: it tells a receiver of
//   something else, whatever way that goes, whom it waits for.
// credit: before message m is sent, all before m - 1 are taken, which the receiver says as it
// begins
//   m - 1 at the latest. So no mark is lost.
#pragma once

#include "kernels/cuda/rings.cuh"

namespace tutti::kernels::cuda {

// All threads of the block.
class TransferMessage {
 protected:
  __device__ TransferMessage(const GpuView& view, const wire::GpuTransfer& transfer)
      : view_(view),
        peer_(transfer.peer),
        ring_(static_cast<int>(blockIdx.x) - transfer.firstBlock),
        signature_(transfer.signature) {}

  __device__ __forceinline__ Awaited awaited(Collective as) const {
    return {peer_, number_, signature_, as, 0, static_cast<int>(blockIdx.x)};
  }

  // False when that ended without.
  __device__ __forceinline__ bool beginSend() {
    wire::GpuCounters& counters = controlOf(view_, view_.rank)->counters[ring_][peer_];
    number_ = loadRelaxed(&counters.sent);
    const bool isFine = threadIdx.x != 0 || awaitCredit();
    if (__syncthreads_and(isFine ? 1 : 0) == 0) return false;
    if (threadIdx.x == 0) {
      counters.sent = number_ + 1;
      storeRelaxed(&markAt(peer_, view_.rank), stamped(signature_, number_ + 1));
    }
    return true;
  }

  // Finds the message's number; returns whether the communicator is over, for beginReceive(), by
  // which all have read the counter.
  __device__ __forceinline__ uint32_t loadReceived() {
    const GpuControl* own = controlOf(view_, view_.rank);
    number_ = loadRelaxed(&own->counters[ring_][peer_].received);
    return loadRelaxed(&own->dead);
  }
  __device__ __forceinline__ bool beginReceive(uint32_t dead) const {
    if (__syncthreads_or(static_cast<int>(dead)) != 0) return false;
    if (threadIdx.x == 0) {
      storeRelaxed(&controlOf(view_, peer_)->credit[ring_][view_.rank],
                   static_cast<uint64_t>(static_cast<uint32_t>(number_)));
      controlOf(view_, view_.rank)->counters[ring_][peer_].received = number_ + 1;
    }
    return true;
  }

  // The peer's message of our number is another: now and then in a wait.
  __device__ __forceinline__ bool isOtherCall(const Patience& patience) const {
    return patience.hasLooked() && !isSameMark(loadRelaxed(&markAt(view_.rank, peer_)));
  }

  // One thread, after the message: as many bytes may have come of another call.
  __device__ void checkCaller() const {
    const uint64_t* mark = &markAt(view_.rank, peer_);
    uint64_t seen = loadRelaxed(mark);
    Patience patience;
    while (static_cast<uint32_t>(seen) != static_cast<uint32_t>(number_ + 1)) {
      if (patience.isOver(view_, awaited(Collective::kRecv))) return;
      seen = loadRelaxed(mark);
    }
    isSameMark(seen);
  }

  const GpuView& view_;
  const int peer_;
  const int ring_;
  const uint32_t signature_;
  uint64_t number_ = 0;

 private:
  __device__ __forceinline__ uint64_t& markAt(int rank, int from) const {
    return controlOf(view_, rank)->mark[ring_][from][slotNumber(view_, ring_, number_)];
  }

  // One thread. False when that ended without.
  __device__ bool awaitCredit() const {
    const GpuControl* own = controlOf(view_, view_.rank);
    const uint64_t* credit = &own->credit[ring_][peer_];
    uint64_t seen = loadRelaxed(credit);
    if (loadRelaxed(&own->dead) != 0) return false;
    Patience patience;
    while (!hasReached(static_cast<uint32_t>(seen), static_cast<uint32_t>(number_) - 1)) {
      if (patience.isOver(view_, awaited(Collective::kSend))) return false;
      seen = loadRelaxed(credit);
    }
    return true;
  }

  __device__ bool isSameMark(uint64_t seen) const {
    const auto theirs = static_cast<uint32_t>(seen >> 32);
    const bool isThis = static_cast<uint32_t>(seen) == static_cast<uint32_t>(number_ + 1);
    if (!isThis || theirs == signature_) return true;
    report(view_, awaited(Collective::kRecv), GpuFault::kMismatch, theirs);
    return false;
  }
};

}  // namespace tutti::kernels::cuda
