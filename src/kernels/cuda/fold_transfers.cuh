// Long reductions of two ranks as a send and a receive that folds, each in blocks of its own:
// through the rings of slots that transfers use (transfers.cuh), whose geometry they have.
#pragma once

#include "kernels/cuda/slots.cuh"
#include "kernels/cuda/transfers.cuh"

namespace tutti::kernels::cuda {

// What a block's movers do in one step: slots[0] and no place of a send, a place of a receive.
struct FoldStep {
  Spread<1> same;
  const std::byte* folds[2];  // of a receive: the own input, the message
  bool isFine;
};

template <bool kSends>
class FoldKeeper {
 public:
  __device__ FoldKeeper(const TransferCall& call, int lane)
      : call_(call),
        lane_(lane),
        awaited_{call.transfer.peer,
                 0,
                 call.transfer.signature,
                 kSends ? Collective::kSend : Collective::kRecv,
                 0,
                 static_cast<int>(blockIdx.x)},
        through_(call.view, call.transfer, call.block),
        pulling_(call.isPulled) {
    if (lane != 0) return;
    if constexpr (kSends) {
      end_ = OutRing(call.view, awaited_, call.block, call.isPulled);
    } else {
      end_ = InRing(call.view, awaited_, call.block, call.chunks, call.isPulled);
    }
  }

  __device__ void begin() const {
    if constexpr (!kSends) {
      if (lane_ == 0) end_.begin(call_.view);
    }
  }

  __device__ bool prepare(int64_t step, FoldStep& table) {
    if (lane_ != 0) return true;
    const wire::GpuTransfer& transfer = call_.transfer;
    if (step == 0) pulling_.begin(call_.view, awaited_, call_.block);
    const size_t at = call_.offset(step);
    const uint32_t bytes = call_.bytesAt(at);
    if constexpr (kSends) {
      std::byte* slot = end_.awaitSlot(call_.view, step);
      table.same = {transfer.buffer + at, nullptr, bytes, {reinterpret_cast<uint4*>(slot)}};
      return slot != nullptr;
    } else {
      const std::byte* message = end_.await(call_.view, step);
      const std::byte* own = transfer.source + at;
      table.same = {own, transfer.buffer + at, bytes, {nullptr}};
      table.folds[0] = own;
      table.folds[1] = message;
      return message != nullptr && through_.await(call_.view, awaited_, step);
    }
  }

  __device__ void complete(int64_t step) {
    if constexpr (kSends) {
      if (lane_ == 0) through_.raise(step);
      fenceSystem();
      if (lane_ == 0) end_.mark(call_.view, step);
    } else {
      if (lane_ == 0) end_.take(call_.view, step);
    }
  }

  __device__ void save() const {
    if (lane_ != 0) return;
    if constexpr (kSends) {
      end_.save(call_.view, call_.chunks);
    } else {
      end_.save(call_.view);
    }
  }

  // The opener, after the last step of a call that went well.
  __device__ void finish() const {
    if (lane_ != 0) return;
    if (!pulling_.end<kSends>(call_.view, awaited_, call_.block)) return;
    if constexpr (!kSends) through_.reset();
  }

 private:
  const TransferCall& call_;
  const int lane_;
  const Awaited awaited_;
  const Through through_;
  Pulling pulling_;
  std::conditional_t<kSends, OutRing, InRing> end_;
};

template <bool kSends, typename Policy>
__device__ __forceinline__ void runFoldTransfer(const wire::GpuTransfers& transfers,
                                                const wire::GpuTransfer& transfer,
                                                FoldStep (&tables)[2], Pump& pump) {
  const TransferCall call(transfers.view, transfer);
  if (threadIdx.x == 0) clearPump(pump);
  if (isOver(transfers.view)) return;
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread >= kMovers) {
    FoldKeeper<kSends> keeper(call, thread % 32);
    if (thread >= kMovers + kOpeners) {
      close(keeper, pump, call.chunks);
    } else if (open(keeper, tables, pump, PumpBarrier{1}, call.chunks)) {
      keeper.finish();
    }
    return;
  }
  const Movers<2, Policy> movers(transfers.reduction, transfers.view, threadIdx.x);
  move(
      [&](const FoldStep& table) {
        if constexpr (kSends) {
          movers.sendOne(table.same);
        } else {
          movers.work(table);
        }
      },
      tables, pump, PumpBarrier{1}, call.chunks);
}

// REQUIRES: two ranks; transfers long enough for slots.
template <typename Policy>
__device__ __forceinline__ void runFoldTransfers(const wire::GpuTransfers& transfers,
                                                 FoldStep (&tables)[2], Pump& pump) {
  const int block = static_cast<int>(blockIdx.x);
  awaitStream();
  for (int i = 0; i < transfers.transferCount; ++i) {
    const wire::GpuTransfer& transfer = transfers.transfers[i];
    if (block < transfer.firstBlock || block >= transfer.firstBlock + transfer.blocks) continue;
    if (transfer.isSend) {
      runFoldTransfer<true, Policy>(transfers, transfer, tables, pump);
    } else {
      runFoldTransfer<false, Policy>(transfers, transfer, tables, pump);
    }
    return;
  }
}

}  // namespace tutti::kernels::cuda
