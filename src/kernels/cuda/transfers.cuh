// Sends, receives and local copies of a group, each with its own blocks; block j of a transfer uses
// ring j of the pair. All of them go on at the same time, so any pattern of them ends.
//
// Of a long one the receiver first tells the sender's block j where the sender can write to the
// buffer, or that it cannot. Then the bytes go there, and the one message that the pair's ring j
// carries says that they have. So they do where copy engines carry them (wire::GpuEngine).
//
// places[b][p]: written by rank p's block b as it begins to receive from this rank; read here by
//   the sender's keeper, each half of the line by one store with 32 bits of the ring's next message
//   number + 1 in it, which was another in every receive before. The next is written only when this
//   one's last message has come.
#pragma once

#include <type_traits>

#include "kernels/cuda/pulling.cuh"
#include "kernels/cuda/pump.cuh"
#include "kernels/cuda/ranges.cuh"
#include "kernels/cuda/sharing.cuh"
#include "kernels/cuda/through.cuh"
#include "kernels/cuda/transfer_lines.cuh"
#include "kernels/cuda/transfer_rows.cuh"

namespace tutti::kernels::cuda {

// Rings of a block: where slots are short, one would be bound by its fences.
inline constexpr int kTransferRings = wire::gpuRings(wire::kGpuMaxRanks) / wire::kGpuMaxBlocks;
struct TransferStep {
  Range ranges[kTransferRings];
  bool isFine;
};

// A transfer as one of its blocks sees it. In each step every ring of the block carries a message.
struct TransferCall {
  const GpuView& view;
  const wire::GpuTransfer& transfer;
  const int block;
  const int rings;  // of this block
  bool isPulled;
  // This block is number `place` of `blocks` that share `bytes` bytes from `from` on.
  int place;
  int blocks;
  uint64_t from = 0;
  uint64_t bytes;
  uint32_t chunkBytes;
  int64_t chunks;  // of this block

  __device__ TransferCall(const GpuView& itsView, const wire::GpuTransfer& itsTransfer)
      : view(itsView),
        transfer(itsTransfer),
        block(static_cast<int>(blockIdx.x) - itsTransfer.firstBlock),
        rings(wire::gpuRings(itsView.rankCount) / wire::kGpuMaxBlocks),
        isPulled(itsTransfer.pull != wire::GpuPull::kNone),
        place(block),
        blocks(itsTransfer.blocks),
        bytes(itsTransfer.bytes) {
    if (transfer.pull == wire::GpuPull::kHalf) takeHalf();
    const uint64_t share = (bytes + blocks - 1) / blocks;
    constexpr uint32_t kPass = kMovers * sizeof(uint4);
    uint32_t passes = static_cast<uint32_t>(wire::gpuSlotBytes(view.rankCount)) / kPass;
    if (isPulled) passes = passes / 8 * 8;  // whole batches of loads
    uint64_t most = passes * kPass;
    // What is pushed, in messages of one length, so that no block has one more than the others.
    if (!isPulled && share > most) {
      const uint64_t rounds = (share + most - 1) / most;
      most = (share + rounds - 1) / rounds;
    }
    chunkBytes = static_cast<uint32_t>((min(share, most) + 15) / 16 * 16);
    const uint64_t all = chunkBytes > 0 ? (bytes + chunkBytes - 1) / chunkBytes : 0;
    chunks = static_cast<int64_t>((all + blocks - 1 - place) / blocks);
  }

  __device__ __forceinline__ void takeHalf() {
    const uint64_t pushed = bytes / 2 / 4096 * 4096;
    blocks /= 2;
    isPulled = block >= blocks;
    if (isPulled) place -= blocks;
    from = isPulled ? pushed : 0;
    bytes = isPulled ? bytes - pushed : pushed;
  }

  // Where a chunk of this block is in the buffer, and how long.
  __device__ __forceinline__ size_t offset(int64_t chunk) const {
    return from + (static_cast<size_t>(chunk) * blocks + place) * chunkBytes;
  }
  __device__ __forceinline__ uint32_t bytesAt(size_t offset) const {
    return static_cast<uint32_t>(min(from + bytes - offset, static_cast<size_t>(chunkBytes)));
  }

  // Messages of a ring; the first has the most.
  __device__ __forceinline__ int64_t messages(int ring) const {
    return rings > 1 ? (chunks + 1 - ring) >> 1 : chunks;
  }
};
static_assert(kTransferRings == 2);

// One pump a block; lane l of its keeper keeps the block's ring l.
template <bool kSends>
class TransferKeeper {
 public:
  __device__ TransferKeeper(const TransferCall& call, Pump& pump, int lane, bool isOpener)
      : call_(call),
        pump_(pump),
        lane_(lane),
        steps_(call.messages(0)),
        awaited_{call.transfer.peer,
                 0,
                 call.transfer.signature,
                 kSends ? Collective::kSend : Collective::kRecv,
                 0,
                 static_cast<int>(blockIdx.x)},
        through_(call.view, call.transfer, call.block),
        pulling_(call.isPulled) {
    if (!kSends && isOpener && call.transfer.tellsPlace && steps_ > 0) tellPlace();
    messages_ = lane < call.rings ? call.messages(lane) : 0;
    if (!kSends && place_ != nullptr) messages_ = lane == 0 ? 1 : 0;
    if (lane >= call.rings) return;
    const int ring = call.block + lane * wire::kGpuMaxBlocks;
    if constexpr (kSends) {
      end_ = OutRing(call.view, awaited_, ring, call.isPulled);
    } else {
      end_ = InRing(call.view, awaited_, ring, messages_, call.isPulled);
    }
  }

  __device__ void begin() const {
    if constexpr (!kSends) {
      if (lane_ < call_.rings) end_.begin(call_.view);
    }
  }

  __device__ bool prepare(int64_t step, TransferStep& table) {
    if (kSends && step == 0 && call_.transfer.tellsPlace && !awaitPlace()) return false;
    if (step == 0 && isOfEngine()) return false;
    if (lane_ >= kTransferRings) return true;
    if (step == 0 && lane_ == 0) pulling_.begin(call_.view, awaited_, call_.block);
    if (!kSends && lane_ == 0 && !through_.await(call_.view, awaited_, step)) return false;
    Range& range = table.ranges[lane_];
    range.bytes = 0;
    if constexpr (!kSends) {
      if (place_ != nullptr) {
        isThrough_ = lane_ == 0 && end_.await(call_.view, 0) != nullptr;
        return false;
      }
    }
    if (lane_ >= call_.rings || step >= call_.messages(lane_)) return true;
    const wire::GpuTransfer& transfer = call_.transfer;
    const size_t at = call_.offset(step * call_.rings + lane_);
    const uint32_t bytes = call_.bytesAt(at);
    if constexpr (kSends) {
      std::byte* to = place_ != nullptr ? place_ + at : end_.awaitSlot(call_.view, step);
      range = {transfer.buffer + at, to, bytes};
      return to != nullptr;
    } else {
      const std::byte* slot = end_.await(call_.view, step);
      range = {slot, transfer.buffer + at, bytes};
      return slot != nullptr;
    }
  }

  // All has been said without the movers, who were sent away.
  __device__ __forceinline__ bool isThrough() const { return isThrough_; }

  __device__ void complete(int64_t step) {
    if constexpr (kSends) {
      if (lane_ == 0) through_.raise(step);
      if (pump_.isPlaced && step + 1 < steps_) return;
      fenceSystem();
      if (pump_.isPlaced) {
        if (lane_ == 0) end_.mark(call_.view, 0);
      } else if (step < messages_) {
        end_.mark(call_.view, step);
      }
    } else {
      if (step < messages_) end_.take(call_.view, step);
    }
  }

  __device__ void save() const {
    if (lane_ >= call_.rings) return;
    if constexpr (kSends) {
      const int64_t placed = lane_ == 0 ? 1 : 0;
      end_.save(call_.view, pump_.isPlaced ? placed : messages_);
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
  // Whether copy engines carry the bytes: then they are about to, or have and the receiver is told.
  __device__ bool isOfEngine() {
    const wire::GpuTransfer& transfer = call_.transfer;
    if (!kSends) return transfer.engine == wire::GpuEngine::kGate;
    if (transfer.engine == wire::GpuEngine::kNone) return false;
    if (place_ != nullptr && place_ != transfer.source) {
      if (lane_ == 0) report(call_.view, awaited_, GpuFault::kMismatch, awaited_.signature);
      return true;
    }
    if (transfer.engine == wire::GpuEngine::kGate) return true;
    if (place_ == nullptr) return false;
    if constexpr (kSends) {
      fenceSystem();
      if (lane_ == 0) end_.mark(call_.view, 0);
    }
    isThrough_ = lane_ == 0;
    return true;
  }

  // The number that the transfer's place has as its flag.
  __device__ uint64_t placeNumber() const {
    const wire::GpuCounters& counters =
        controlOf(call_.view, call_.view.rank)->counters[call_.block][call_.transfer.peer];
    return (kSends ? counters.sent : counters.received) + 1;
  }

  // Of a receive that has a gate.
  __device__ uint32_t& gated() const {
    return controlOf(call_.view, call_.view.rank)->gated[call_.block][call_.transfer.peer];
  }

  __device__ void tellPlace() {
    const wire::GpuTransfer& transfer = call_.transfer;
    const bool isTold = transfer.engine == wire::GpuEngine::kTell;
    // One lane looks, since the words may change.
    bool isReached = lane_ == 0 && transfer.reach != nullptr;
    if (isReached) isReached = isTold ? gated() != 0 : isAlive(transfer.alive);
    if (__shfl_sync(0xffffffff, isReached ? 1 : 0, 0) != 0) place_ = transfer.reach;
    if (lane_ != 0 || isTold) return;
    if (transfer.engine == wire::GpuEngine::kGate) gated() = isReached ? 1 : 0;
    GpuControl* theirs = controlOf(call_.view, transfer.peer);
    storeAddress(theirs->places[call_.block][call_.view.rank], place_, placeNumber());
  }

  __device__ bool awaitPlace() {
    Awaited awaited = awaited_;
    awaited.number = placeNumber();
    bool isFine = true;
    if (lane_ == 0) {
      const auto& line =
          controlOf(call_.view, call_.view.rank)->places[call_.block][call_.transfer.peer];
      isFine = awaitAddress(call_.view, line, awaited, place_);
    }
    const auto bits = reinterpret_cast<uint64_t>(place_);
    place_ = reinterpret_cast<std::byte*>(__shfl_sync(0xffffffff, bits, 0));
    if (place_ != nullptr) messages_ = lane_ == 0 ? 1 : 0;
    if (lane_ == 0) pump_.isPlaced = place_ != nullptr;
    return isFine;
  }

  const TransferCall& call_;
  Pump& pump_;
  const int lane_;
  const int64_t steps_;
  const Awaited awaited_;
  const Through through_;
  Pulling pulling_;
  int64_t messages_ = 0;        // of this lane's ring
  std::byte* place_ = nullptr;  // where the sender writes: the receiver's buffer, or null
  bool isThrough_ = false;
  std::conditional_t<kSends, OutRing, InRing> end_;
};

// By all threads of a block, to the same answer: the word may change between two looks, and a
// keeper that returned alone would leave its movers at their barrier.
__device__ __forceinline__ bool isOver(const GpuView& view) {
  const bool isDead = loadRelaxed(&controlOf(view, view.rank)->dead) != 0;
  return __syncthreads_or(isDead ? 1 : 0) != 0;
}

template <bool kSends>
__device__ __forceinline__ void runTransfer(const GpuView& view, const wire::GpuTransfer& transfer,
                                            TransferStep (&tables)[2], Pump& pump) {
  const TransferCall call(view, transfer);
  const int64_t steps = call.messages(0);
  if (threadIdx.x == 0) clearPump(pump);
  if (isOver(view)) return;
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread >= kMovers) {
    const bool isOpener = thread < kMovers + kOpeners;
    TransferKeeper<kSends> keeper(call, pump, thread % 32, isOpener);
    if (!isOpener) {
      close(keeper, pump, steps);
    } else if (open(keeper, tables, pump, PumpBarrier{1}, steps)) {
      keeper.finish();
    } else if (__any_sync(0xffffffff, keeper.isThrough()) != 0) {
      keeper.save();  // the closer had nothing to close
      keeper.finish();
    }
  } else if (call.rings == 1) {
    move([](const TransferStep& table) { copy<8, 1>(table.ranges, threadIdx.x, AsIs()); }, tables,
         pump, PumpBarrier{1}, steps);
  } else {
    move(
        [](const TransferStep& table) {
          copy<5, kTransferRings>(table.ranges, threadIdx.x, AsIs());
        },
        tables, pump, PumpBarrier{1}, steps);
  }
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
                                             TransferStep (&tables)[2], Pump& pump) {
  const int block = static_cast<int>(blockIdx.x);
  const GpuView& view = transfers.view;
  awaitStream();
  for (int i = 0; i < transfers.transferCount; ++i) {
    const wire::GpuTransfer& transfer = transfers.transfers[i];
    if (block < transfer.firstBlock || block >= transfer.firstBlock + transfer.blocks) continue;
    if (transfer.peer == view.rank) {
      copyLocally(transfer);
    } else if (transfer.messages == wire::GpuMessages::kLines) {
      LineTransfer lines(view, transfer);
      transfer.isSend ? lines.send() : lines.receive();
    } else if (transfer.messages == wire::GpuMessages::kWideLines) {
      RowTransfer rows(view, transfer);
      transfer.isSend ? rows.send() : rows.receive();
    } else if (transfer.isSend) {
      runTransfer<true>(view, transfer, tables, pump);
    } else {
      runTransfer<false>(view, transfer, tables, pump);
    }
    return;
  }
}

}  // namespace tutti::kernels::cuda
