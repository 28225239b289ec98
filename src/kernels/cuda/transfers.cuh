// Sends, receives and local copies of a group, each with its own blocks; block j of a transfer uses
// ring j of the pair. All of them go on at the same time, so any pattern of them ends.
#pragma once

#include <new>

#include "kernels/cuda/rings.cuh"
#include "kernels/cuda/spread.cuh"

namespace tutti::kernels::cuda {

class Transfer {
 public:
  __device__ Transfer(const GpuView& view, const wire::GpuTransfer& transfer)
      : view_(view),
        transfer_(transfer),
        ring_(static_cast<int>(blockIdx.x) - transfer.firstBlock) {
    const size_t share = (transfer.bytes + transfer.blocks - 1) / transfer.blocks;
    const size_t slot = wire::gpuSlotBytes(view.rankCount);
    chunkBytes_ = min((share + 15) / 16 * 16, slot);
    const size_t chunks = chunkBytes_ > 0 ? (transfer.bytes + chunkBytes_ - 1) / chunkBytes_ : 0;
    steps_ = (chunks + transfer.blocks - 1 - ring_) / transfer.blocks;
  }

  __device__ void run() {
    if (transfer_.peer == view_.rank) return copyLocally();
    __shared__ alignas(Ring) unsigned char memory[sizeof(Ring)];
    __shared__ std::byte* slots[wire::kGpuMaxRanks];
    Ring& ring = *reinterpret_cast<Ring*>(memory);
    const Collective kind = transfer_.isSend ? Collective::kSend : Collective::kRecv;
    if (threadIdx.x == 0) {
      new (&ring) Ring(view_, {transfer_.peer, 0, transfer_.signature, kind}, ring_,
                       transfer_.isSend ? Ring::Side::kSends : Ring::Side::kReceives);
      ring.begin(transfer_.isSend ? 0 : steps_);
    }
    bool isFine = loadRelaxed(&controlOf(view_, view_.rank)->dead) == 0;
    for (size_t k = 0; k < steps_; ++k) {
      if (isFine && threadIdx.x == 0) {
        // A received message is only read.
        slots[transfer_.peer] =
            transfer_.isSend ? ring.awaitSlot(0) : const_cast<std::byte*>(ring.awaitMessage(0));
        isFine = slots[transfer_.peer] != nullptr;
      }
      if (__syncthreads_or(isFine ? 0 : 1) != 0) return;
      move(k, slots);
      __syncthreads();
      if (threadIdx.x == 0) finish(ring);
    }
    if (threadIdx.x == 0) ring.save();
  }

 private:
  struct Keep {
    __device__ __forceinline__ uint4 operator()(const uint4& raw) const { return raw; }
  };

  __device__ void move(size_t step, std::byte* const* slots) {
    const size_t at = (step * transfer_.blocks + ring_) * chunkBytes_;
    const size_t bytes = min(transfer_.bytes - at, chunkBytes_);
    std::byte* buffer = transfer_.buffer + at;
    const int peer = transfer_.peer;
    if (transfer_.isSend) {
      cuda::run({buffer, bytes, nullptr, bit(peer), slots, peer, view_.rankCount}, Keep());
    } else {
      cuda::run({slots[peer], bytes, buffer, 0, nullptr, 0, 0}, Keep());
    }
  }

  __device__ void finish(Ring& ring) {
    if (transfer_.isSend) {
      fenceSystem();
      ring.mark();
    } else {
      ring.take(1);
    }
  }

  __device__ void copyLocally() {
    for (size_t step = 0; step < steps_; ++step) {
      const size_t at = (step * transfer_.blocks + ring_) * chunkBytes_;
      const size_t bytes = min(transfer_.bytes - at, chunkBytes_);
      cuda::run({transfer_.source + at, bytes, transfer_.buffer + at, 0, nullptr, 0, 0}, Keep());
    }
  }

  const GpuView& view_;
  const wire::GpuTransfer& transfer_;
  const int ring_;
  size_t chunkBytes_;
  size_t steps_;
};

__device__ __forceinline__ void runTransfers(const wire::GpuTransfers& transfers) {
  const int block = static_cast<int>(blockIdx.x);
  for (int i = 0; i < transfers.transferCount; ++i) {
    const wire::GpuTransfer& transfer = transfers.transfers[i];
    if (block < transfer.firstBlock || block >= transfer.firstBlock + transfer.blocks) continue;
    Transfer(transfers.view, transfer).run();
    return;
  }
}

}  // namespace tutti::kernels::cuda
