// Sends, receives and local copies of a group, each with its own blocks; block j of a transfer uses
// ring j of the pair. All of them go on at the same time, so any pattern of them ends.
#pragma once

#include "kernels/cuda/pump.cuh"
#include "kernels/cuda/ranges.cuh"

namespace tutti::kernels::cuda {

struct TransferStep {
  Spread<1> range;
  bool isFine;
};

// A transfer's blocks have one pump each, of whose keeper lane 0 keeps the ring.
template <bool kSends>
class TransferKeeper {
 public:
  __device__ TransferKeeper(const GpuView& view, const wire::GpuTransfer& transfer, int64_t steps,
                            uint32_t chunkBytes, int ring)
      : view_(view), transfer_(transfer), chunkBytes_(chunkBytes), ring_(ring) {
    if (!isFirst()) return;
    const Awaited awaited{transfer.peer, 0, transfer.signature,
                          kSends ? Collective::kSend : Collective::kRecv, 0};
    if constexpr (kSends) {
      out_ = OutRing(view, awaited, ring);
    } else {
      in_ = InRing(view, awaited, ring, steps);
    }
  }

  __device__ bool prepare(int64_t step, TransferStep& table) {
    if (!isFirst()) return true;
    const size_t at = (static_cast<size_t>(step) * transfer_.blocks + ring_) * chunkBytes_;
    std::byte* buffer = transfer_.buffer + at;
    table.range.bytes =
        static_cast<uint32_t>(min(transfer_.bytes - at, static_cast<size_t>(chunkBytes_)));
    if constexpr (kSends) {
      table.range.from = buffer;
      table.range.to = nullptr;
      table.range.slots[0] = reinterpret_cast<uint4*>(out_.awaitSlot(view_, step));
      return table.range.slots[0] != nullptr;
    } else {
      table.range.from = in_.await(view_, step);
      table.range.to = buffer;
      table.range.slots[0] = nullptr;
      return table.range.from != nullptr;
    }
  }

  __device__ void complete(int64_t step) {
    if (!isFirst()) return;
    if constexpr (kSends) {
      fenceSystem();
      out_.mark(view_, step);
    } else {
      in_.take(view_, step);
    }
  }

  __device__ void save(int64_t steps) const {
    if (!isFirst()) return;
    if constexpr (kSends) {
      out_.save(view_, steps);
    } else {
      in_.save(view_);
    }
  }

 private:
  static __device__ __forceinline__ bool isFirst() { return threadIdx.x == kMovers; }

  const GpuView& view_;
  const wire::GpuTransfer& transfer_;
  const uint32_t chunkBytes_;
  const int ring_;
  OutRing out_;
  InRing in_;
};

template <bool kSends>
__device__ __forceinline__ void runTransfer(const GpuView& view, const wire::GpuTransfer& transfer,
                                            TransferStep (&tables)[2]) {
  const int ring = static_cast<int>(blockIdx.x) - transfer.firstBlock;
  const uint64_t share = (transfer.bytes + transfer.blocks - 1) / transfer.blocks;
  const uint64_t slot = wire::gpuSlotBytes(view.rankCount);
  const auto chunkBytes = static_cast<uint32_t>(min((share + 15) / 16 * 16, slot));
  const uint64_t chunks = chunkBytes > 0 ? (transfer.bytes + chunkBytes - 1) / chunkBytes : 0;
  const auto steps = static_cast<int64_t>((chunks + transfer.blocks - 1 - ring) / transfer.blocks);
  if (loadRelaxed(&controlOf(view, view.rank)->dead) != 0) return;
  if (threadIdx.x < kMovers) {
    move([](const TransferStep& table) { spread<8>(table.range, threadIdx.x, AsIs()); }, tables, 1,
         steps);
    return;
  }
  TransferKeeper<kSends> keeper(view, transfer, steps, chunkBytes, ring);
  if (keep(keeper, tables, 1, steps)) keeper.save(steps);
}

__device__ __forceinline__ void copyLocally(const wire::GpuTransfer& transfer) {
  constexpr uint64_t kStep = 64 << 10;
  const uint64_t block = blockIdx.x - static_cast<unsigned>(transfer.firstBlock);
  if (threadIdx.x >= kMovers) return;
  for (uint64_t at = block * kStep; at < transfer.bytes; at += transfer.blocks * kStep) {
    const auto bytes = static_cast<uint32_t>(min(transfer.bytes - at, kStep));
    spread<8>(Spread<1>{transfer.source + at, transfer.buffer + at, bytes, {}}, threadIdx.x,
              AsIs());
  }
}

__device__ __forceinline__ void runTransfers(const wire::GpuTransfers& transfers,
                                             TransferStep (&tables)[2]) {
  const int block = static_cast<int>(blockIdx.x);
  const GpuView& view = transfers.view;
  for (int i = 0; i < transfers.transferCount; ++i) {
    const wire::GpuTransfer& transfer = transfers.transfers[i];
    if (block < transfer.firstBlock || block >= transfer.firstBlock + transfer.blocks) continue;
    if (transfer.peer == view.rank) {
      copyLocally(transfer);
    } else if (transfer.isSend) {
      runTransfer<true>(view, transfer, tables);
    } else {
      runTransfer<false>(view, transfer, tables);
    }
    return;
  }
}

}  // namespace tutti::kernels::cuda
