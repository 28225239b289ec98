// Long collectives of more than two ranks, through the rings of slots.cuh, each part in thread
// blocks, thus on multiprocessors, of its own: senders load the input and store to peers, workers
// fold or keep what comes and pass it on, collectors take the second stage's messages to the
// output. A multiprocessor whose stores to peers wait for the link then holds up no loads of
// another part.
//
// The grid has first all senders, then all workers, then all collectors. A group of a block's
// threads has a part of a lane: where threads move (pump.cuh) one a block, or two; where copy
// engines do (bulk.cuh) four, but two that fold. The messages of a lane are those of slots.cuh's
// block of that number, so ranks that run those kernels (what shares its output, sharing.cuh), and
// ranks that move either way, may meet.
//
// No deadlock: of a chunk the worker needs what the senders send, and the collectors need what the
// workers pass on; a sender needs credit that workers give, a worker credit that collectors give,
// both for chunks before. The three wait for nothing else of each other but, in place, the worker
// for its own sender, whose last wait is for peers that begin the call. All blocks of a launch have
// to be on the GPU at once.
//
// readChunks[lane]: raised by the sender's closer when its movers' loads have returned, polled by
//   the opener of the worker of the same launch, which has a barrier between that and its movers'
//   stores. Relaxed and acquire. It only grows, by a call's chunks in each call, sent or not, as
//   does workedChunks, which the worker alone reads and writes.
#pragma once

#include "kernels/cuda/bulk.cuh"
#include "kernels/cuda/slots.cuh"

namespace tutti::kernels::cuda {

inline constexpr int kParts = wire::kGpuLaneParts;  // sender, worker, collector
inline constexpr int kApartThreads = wire::kGpuFoldLanes * kPumpThreads;  // of a block, at most
static_assert(kBulkLanes * kBulkThreads <= kApartThreads);
static_assert(kBulkLanes % wire::kGpuFoldLanes == 0);

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
  return awaitSameCall(call.view, awaited,
                       loadRelaxed(entryOf(call.view, awaited.epoch, lane, call.lane)));
}

// Of each part, by its opener and its closer.
struct Keeper {
  SlotStep (&tables)[2];
  Pump& pump;
  PumpBarrier barrier;
  int lane;
  bool isOpener;
  bool isBulk;
};

// The opener's side where the block's copy engine moves.
template <typename Part>
struct ForEngine {
  Part& part;
  const bool isBulk;

  __device__ __forceinline__ bool prepare(int64_t step, SlotStep& table) {
    const bool isFine = part.prepare(step, table);
    if (isBulk) fenceForEngine();
    return isFine;
  }
};
template <typename Part>
__device__ __forceinline__ bool openApart(Part& part, const Keeper& keeper, int64_t steps) {
  ForEngine<Part> forEngine{part, keeper.isBulk};
  return open(forEngine, keeper.tables, keeper.pump, keeper.barrier, steps);
}

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
  announce(call.view, call.call, lane, {call.epoch, call.lane});
  if (!openApart(sender, keeper, steps)) return false;
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
  if (!openApart(worker, keeper, steps)) return false;
  if (keeper.lane == 0) progress.saveWorked(call);
  return true;
}

__device__ __forceinline__ bool keepCollector(const SlotCall& call, const Keeper& keeper) {
  CollectorKeeper collector(call, keeper.lane);
  const int64_t steps = call.roles.collects != 0 ? call.chunks : 0;
  if (!keeper.isOpener) return close(collector, keeper.pump, steps);
  return openApart(collector, keeper, steps);
}

// Which part of which lane a group of a block's threads has.
struct ApartPlace {
  int part;
  int lane;
  bool isBulk;
  int group;   // of the block's
  int thread;  // of the group's

  // Of all groups of such a block alike.
  __device__ __forceinline__ int threads() const { return isBulk ? kBulkThreads : kPumpThreads; }
  __device__ __forceinline__ int movers() const { return isBulk ? kBulkMovers : kMovers; }
  __device__ __forceinline__ PumpBarrier pumpBarrier() const {
    return {1 + 2 * group, movers() + kOpeners};
  }
  // Whether it holds for all threads of the group, which all have come.
  __device__ __forceinline__ bool isAll(bool value) const {
    uint32_t result;
    asm volatile(
        "{\n .reg .pred p, q;\n setp.ne.u32 p, %1, 0;\n barrier.red.and.pred q, %2, %3, p;\n"
        " selp.u32 %0, 1, 0, q;\n}"
        : "=r"(result)
        : "r"(value ? 1U : 0U), "r"(2 + 2 * group), "r"(threads())
        : "memory");
    return result != 0;
  }
};

// The grid: all senders, all workers, all collectors. Lanes beyond a call's have nothing to do.
template <bool kFolds>
__device__ __forceinline__ ApartPlace placeOf(const wire::GpuLaunch& launch) {
  const bool isBulk = launch.isBulk != 0;
  const auto block = static_cast<int>(blockIdx.x);
  const auto blocks = static_cast<int>(gridDim.x);
  const auto thread = static_cast<int>(threadIdx.x);
  const int workers = wire::gpuWorkerBlocks(kFolds, isBulk);
  const int ofPart = blocks / (kParts - 1 + workers);
  int part = 0;
  int first = 0;
  if (block >= ofPart * (1 + workers)) {
    part = 2;
    first = ofPart * (1 + workers);
  } else if (block >= ofPart) {
    part = 1;
    first = ofPart;
  }
  if (isBulk && !(kFolds && part == 1)) {
    const int group = thread / kBulkThreads;
    return {part, (block - first) * kBulkLanes + group, true, group, thread % kBulkThreads};
  }
  const int group = thread / kPumpThreads;
  const int groups = static_cast<int>(blockDim.x) / kPumpThreads;
  return {part, (block - first) * groups + group, false, group, thread % kPumpThreads};
}

// What the threads of a group share.
template <int kMost>
struct ApartShared {
  SlotStep tables[2];
  Pump pump;
  uint64_t loaded[kMost - 1];  // of BulkMovers
};

// False, to all threads of the group, when the communicator is over.
template <int kMost, typename Policy>
__device__ __forceinline__ bool runApartCall(const GpuView& view, const GpuCall& call,
                                             const ApartPlace& place, ApartShared<kMost>& shared,
                                             BulkMovers<kMost - 1>& bulk) {
  const int part = place.part;
  const GpuControl* own = controlOf(view, view.rank);
  const uint32_t dead = loadRelaxed(&own->dead);
  const uint64_t epoch = part == 0 ? loadRelaxed(&own->epoch[place.lane]) + 1 : 0;
  const Sharing none{};
  SlotCall slots(view, call, epoch, none, place.lane);
  auto* words = reinterpret_cast<uint32_t*>(shared.tables);
  for (uint32_t i = place.thread; i < sizeof(shared.tables) / 4; i += place.threads()) words[i] = 0;
  if (place.thread == 0) clearPump(shared.pump, place.isBulk ? 1 : kMoverWarps);
  if (!place.isAll(dead == 0)) return false;
  const int keeper = place.thread - place.movers();
  const PumpBarrier barrier = place.pumpBarrier();
  const Keeper itsKeeper{shared.tables,     shared.pump,       barrier,
                         place.thread % 32, keeper < kOpeners, place.isBulk};
  bool isFine = true;
  if (keeper < 0) {
    const bool isNeeded = part == 0 ? slots.sends() : slots.roles.collects != 0;
    const int64_t steps = part == 1 ? slots.workerSteps() : isNeeded ? slots.chunks : 0;
    if (place.isBulk) {
      bulk.run(shared.tables, shared.pump, barrier, steps);
    } else {
      const Movers<kMost, Policy> movers(call, view, place.thread);
      if (part == 1) {
        move([&](const SlotStep& table) { movers.work(table); }, shared.tables, shared.pump,
             barrier, steps);
      } else {
        move([&](const SlotStep& table) { movers.send(table); }, shared.tables, shared.pump,
             barrier, steps);
      }
    }
  } else if (part == 0) {
    isFine = keepSender(slots, itsKeeper);
  } else if (part == 1) {
    isFine = keepWorker<Policy::kFolds>(slots, itsKeeper);
  } else {
    isFine = keepCollector(slots, itsKeeper);
  }
  return place.isAll(isFine);
}

// How far apart the first and the last block of a launch begin: nothing, 0.2 us at most, where the
// GPU is free, also right after another kernel of the stream, and 0.4 to 80 us where others'
// kernels are there, 0.4 to 4 with 32 blocks (H200, matrix products beside, 2026-11-27). The last
// one compares at its end, when it sees what the first has written at its beginning.
class StartClock {
 public:
  __device__ __forceinline__ explicit StartClock(const GpuView& view) {
    if (threadIdx.x != 0) return;
    GpuControl* own = controlOf(view, view.rank);
    const auto now = static_cast<uint32_t>(nanoseconds());
    if (blockIdx.x == 0) storeRelaxed(&own->firstBegan, uint64_t{now} << 32 | ++own->begunByFirst);
    if (blockIdx.x + 1 == gridDim.x) own->lastBegan = now;
  }
  __device__ __forceinline__ void tell(const GpuView& view) const {
    constexpr uint32_t kLate = 500;
    if (threadIdx.x != 0 || blockIdx.x + 1 != gridDim.x) return;
    GpuControl* own = controlOf(view, view.rank);
    const uint32_t number = ++own->endedByLast;
    const uint64_t first = loadRelaxed(&own->firstBegan);
    const uint32_t apart = own->lastBegan - static_cast<uint32_t>(first >> 32);
    const bool isLate = min(apart, 0U - apart) > kLate;
    if (static_cast<uint32_t>(first) == number && isLate) ++own->late;
    storeRelaxed(view.starts, uint64_t{number} << 32 | own->late);
  }
};

template <int kMost, typename Policy>
__device__ __forceinline__ void runApartCalls(const wire::GpuLaunch& launch) {
  if (launch.callCount == 0) return;                     // a trial, which has no ranks either
  extern __shared__ __align__(128) std::byte buffers[];  // of a launch by bulk
  const StartClock clock(launch.view);
  __shared__ ApartShared<kMost> shared[kBulkLanes];
  const ApartPlace place = placeOf<Policy::kFolds>(launch);
  if (place.group >= kBulkLanes) return;
  ApartShared<kMost>& own = shared[place.group];
  const int ranks = launch.view.rankCount;
  BulkMovers<kMost - 1> bulk(buffers + place.group * (wire::gpuBulkBytes(ranks) / kBulkLanes),
                             ranks, own.loaded, place.thread % 32);
  if (place.isBulk && place.thread < kBulkMovers) bulk.prepare();
  for (int i = 0; i < launch.callCount; ++i) {
    const GpuCall& call = launch.calls[i];
    if (place.lane >= call.blocks) continue;
    if (i > 0) place.isAll(true);
    if (!runApartCall<kMost, Policy>(launch.view, call, place, own, bulk)) return;
  }
  clock.tell(launch.view);
}

// A launch with isBulk, or of choices that may be so, has one block on a multiprocessor, others
// two: either way a thread has as many registers.
#define TUTTI_APART_KERNEL(name, most, policy)                                         \
  extern "C" __global__ void __launch_bounds__(tutti::kernels::cuda::kApartThreads, 1) \
      name##most(const __grid_constant__ tutti::wire::GpuLaunch launch) {              \
    tutti::kernels::cuda::runApartCalls<most, policy>(launch);                         \
  }

}  // namespace tutti::kernels::cuda
