// Long collectives of more than two ranks, through the rings of slots.cuh, each part in thread
// blocks, thus on multiprocessors, of its own: senders load the input and store to peers, workers
// fold or keep what comes and pass it on, collectors take the second stage's messages to the
// output. A multiprocessor whose stores to peers wait for the link then holds up no loads of
// another part.
//
// The grid has kParts blocks a lane, first all senders, then all workers, then all collectors. The
// messages of a lane are those of slots.cuh's block of that number, so ranks that run those kernels
// (what shares its output, sharing.cuh) may meet ranks that run these.
//
// No deadlock: of a chunk the worker needs what the senders send, and the collectors need what the
// workers pass on; a sender needs credit that workers give, a worker credit that collectors give,
// both for chunks before. The three wait for nothing else of each other but, in place, the worker
// for its own sender, whose last wait is for peers that begin the call. All blocks of a launch have
// to be on the GPU at once (GpuChoice::blocksPerLane).
//
// readChunks[lane]: raised by the sender's closer when its movers' loads have returned, polled by
//   the opener of the worker of the same launch, which has a barrier between that and its movers'
//   stores. Relaxed and acquire. It only grows, by a call's chunks in each call, sent or not, as
//   does workedChunks, which the worker alone reads and writes.
#pragma once

#include "kernels/cuda/slots.cuh"

namespace tutti::kernels::cuda {

inline constexpr int kParts = wire::kGpuLaneBlocks;  // sender, worker, collector

// How far the sender is, for the worker of the same lane in another block.
class GridProgress {
 public:
  __device__ GridProgress(const SlotCall& call, bool isSender) {
    GpuControl* own = controlOf(call.view, call.view.rank);
    word_ = &own->readChunks[call.lane];
    base_ = loadRelaxed(isSender ? word_ : &own->workedChunks[call.lane]);
    waits_ = !isSender && overlaps(call);
  }

  __device__ void raise(int64_t chunks) const {
    storeRelaxed(word_, base_ + static_cast<uint64_t>(chunks));
  }
  __device__ bool await(const SlotCall& call, int64_t step) const {
    if (!waits_) return true;
    Patience patience;
    while (loadAcquire(word_) <= base_ + static_cast<uint64_t>(step)) {
      if (patience.isOver(call.view, call.awaited(call.view.rank))) return false;
    }
    return true;
  }
  __device__ void saveWorked(const SlotCall& call) const {
    controlOf(call.view, call.view.rank)->workedChunks[call.lane] =
        base_ + static_cast<uint64_t>(call.chunks);
  }

 private:
  static __device__ bool overlaps(const SlotCall& call) {
    const size_t all = call.blockBytes * call.view.rankCount;
    const size_t in = call.roles.inputByPeer ? all : call.blockBytes;
    const size_t out = call.roles.outputByPeer ? all : call.blockBytes;
    const auto* input = static_cast<const std::byte*>(call.call.input);
    const auto* output = static_cast<const std::byte*>(call.call.output);
    return input < output + out && output < input + in;
  }

  uint64_t* word_;
  uint64_t base_;
  bool waits_;
};

// The collector's opener and closer: the second stage's messages to the output.
class CollectorKeeper {
 public:
  __device__ CollectorKeeper(const SlotCall& call, int lane)
      : call_(call), lane_(lane), collectsHere_((call.roles.collects >> lane & 1) != 0) {
    if (collectsHere_) in_ = InRing(call.view, call.awaited(lane), call.secondRing(), call.chunks);
  }

  __device__ void begin() const {
    if (collectsHere_) in_.begin(call_.view);
  }

  __device__ bool prepare(int64_t step, SlotStep& table) {
    if (lane_ == 0) table.hasCollects = true;
    if (!collectsHere_) return true;
    const std::byte* message = in_.await(call_.view, step);
    const size_t at = call_.offset(step, call_.part(lane_));
    table.collects[call_.place(lane_)] = {message, call_.output(lane_, at), call_.bytesAt(at)};
    return message != nullptr;
  }
  __device__ void complete(int64_t step) {
    if (collectsHere_) in_.take(call_.view, step);
  }
  __device__ void save() const {
    if (collectsHere_) in_.save(call_.view);
  }

 private:
  const SlotCall& call_;
  const int lane_;
  const bool collectsHere_;
  InRing in_;
};

// Every rank's block of this number has begun the same call, where its word still tells: who waits
// for messages of one that has not would wait for good. Lane p of the sender's opener for rank p.
__device__ __forceinline__ bool isSameCallEverywhere(const SlotCall& call, int lane) {
  if (((call.roles.receives | call.roles.collects) >> lane & 1) == 0) return true;
  Awaited awaited = call.awaited(lane);
  awaited.number = awaited.epoch;
  return awaitSameCall(call.view, awaited, loadRelaxed(entryOf(call.view, awaited.epoch, lane)));
}

// Of each part, by its opener and its closer.
struct Keeper {
  SlotStep (&tables)[2];
  Pump& pump;
  int lane;
  bool isOpener;
};

__device__ __forceinline__ bool keepSender(SlotCall& call, const Keeper& keeper) {
  const int lane = keeper.lane;
  const GridProgress progress(call, true);
  const uint32_t collects = call.roles.collects;
  call.roles.collects = 0;  // another block's
  SenderKeeper<GridProgress> sender(call, progress, lane);
  const int64_t steps = call.senderSteps();
  if (!keeper.isOpener) {
    if (steps == 0 && lane == 0) progress.raise(call.chunks);
    return close(sender, keeper.pump, steps);
  }
  announce(call.view, call.call, call.epoch, lane);
  if (!open(sender, keeper.tables, keeper.pump, 1, steps)) return false;
  call.roles.collects = collects;
  if (!isSameCallEverywhere(call, lane)) return false;
  if (lane == 0) controlOf(call.view, call.view.rank)->epoch[call.lane] = call.epoch;
  return true;
}

template <bool kFolds>
__device__ __forceinline__ bool keepWorker(const SlotCall& call, const Keeper& keeper) {
  const GridProgress progress(call, false);
  WorkerKeeper<kFolds, GridProgress> worker(call, progress, keeper.lane);
  const int64_t steps = call.workerSteps();
  if (!keeper.isOpener) return close(worker, keeper.pump, steps);
  if (!open(worker, keeper.tables, keeper.pump, 1, steps)) return false;
  if (keeper.lane == 0) progress.saveWorked(call);
  return true;
}

__device__ __forceinline__ bool keepCollector(const SlotCall& call, const Keeper& keeper) {
  CollectorKeeper collector(call, keeper.lane);
  const int64_t steps = call.roles.collects != 0 ? call.chunks : 0;
  if (!keeper.isOpener) return close(collector, keeper.pump, steps);
  return open(collector, keeper.tables, keeper.pump, 1, steps);
}

// Which lane and part of it a block has.
struct ApartPlace {
  int part;
  int lane;
};

// False, to all threads, when the communicator is over.
template <int kMost, typename Policy>
__device__ __forceinline__ bool runApartCall(const GpuView& view, const GpuCall& call,
                                             const ApartPlace& place, SlotStep (&tables)[2],
                                             Pump& pump) {
  const int part = place.part;
  const GpuControl* own = controlOf(view, view.rank);
  const uint32_t dead = loadRelaxed(&own->dead);
  const uint64_t epoch = part == 0 ? loadRelaxed(&own->epoch[place.lane]) + 1 : 0;
  const Sharing none{};
  SlotCall slots(view, call, epoch, none, place.lane);
  auto* words = reinterpret_cast<uint32_t*>(tables);
  for (uint32_t i = threadIdx.x; i < sizeof(tables) / 4; i += blockDim.x) words[i] = 0;
  if (threadIdx.x == 0) clearPump(pump);
  if (__syncthreads_or(dead != 0 ? 1 : 0) != 0) return false;
  const int keeper = static_cast<int>(threadIdx.x) - kMovers;
  const Keeper itsKeeper{tables, pump, static_cast<int>(threadIdx.x) % 32, keeper < kOpeners};
  bool isFine = true;
  if (keeper < 0) {
    const Movers<kMost, Policy> movers(call, view, threadIdx.x);
    if (part == 1) {
      move([&](const SlotStep& table) { movers.work(table); }, tables, pump, 1,
           slots.workerSteps());
    } else {
      const bool isNeeded = part == 0 ? slots.sends() : slots.roles.collects != 0;
      move([&](const SlotStep& table) { movers.send(table); }, tables, pump, 1,
           isNeeded ? slots.chunks : 0);
    }
  } else if (part == 0) {
    isFine = keepSender(slots, itsKeeper);
  } else if (part == 1) {
    isFine = keepWorker<Policy::kFolds>(slots, itsKeeper);
  } else {
    isFine = keepCollector(slots, itsKeeper);
  }
  return __syncthreads_and(isFine ? 1 : 0) != 0;
}

template <int kMost, typename Policy>
__device__ __forceinline__ void runApartCalls(const wire::GpuLaunch& launch) {
  __shared__ SlotStep tables[2];
  __shared__ Pump pump;
  const int lanes = max(static_cast<int>(gridDim.x) / kParts, 1);  // also of a launch of nothing
  const ApartPlace place{static_cast<int>(blockIdx.x) / lanes,
                         static_cast<int>(blockIdx.x) % lanes};
  for (int i = 0; i < launch.callCount; ++i) {
    const GpuCall& call = launch.calls[i];
    if (place.lane >= call.blocks) continue;
    if (i > 0) __syncthreads();
    if (!runApartCall<kMost, Policy>(launch.view, call, place, tables, pump)) return;
  }
}

#define TUTTI_APART_KERNEL(name, most, policy)                                        \
  extern "C" __global__ void __launch_bounds__(tutti::kernels::cuda::kPumpThreads, 2) \
      name##most(const __grid_constant__ tutti::wire::GpuLaunch launch) {             \
    tutti::kernels::cuda::runApartCalls<most, policy>(launch);                        \
  }

}  // namespace tutti::kernels::cuda
