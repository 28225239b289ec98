// How a part of a block moves messages: kMovers threads that load and store, and two warps beside
// them: the opener, which waits for what the next step needs of the peers, and the closer, which
// tells the peers of each step that the movers are through with. Lane p of either is for the rings
// with rank p.
//
// While the movers are at one step, the opener waits for the next, and the closer fences and tells
// of the last. So neither the fence (a trip to the peers, behind all that is under way) nor the
// polls stand in the movers' way, or in each other's: a step costs one barrier, and a peer has each
// message and each credit as soon as may be.
#pragma once

#include "kernels/cuda/rings.cuh"

namespace tutti::kernels::cuda {

inline constexpr int kMovers = 192;
inline constexpr int kOpeners = 32;
inline constexpr int kClosers = 32;
inline constexpr int kKeepers = kOpeners + kClosers;
inline constexpr int kPumpThreads = kMovers + kKeepers;

// What a pump's threads share beside their tables.
struct Pump {
  // Steps that the movers' warps are through with, of all together.
  unsigned moved;
  unsigned warps;   // that move
  unsigned opened;  // steps whose tables are ready
  bool isOver;      // the opener gave up, or had no need of movers
  bool isPlaced;    // of a send: the bytes go to the receiver's buffer (transfers.cuh)
};
inline constexpr unsigned kMoverWarps = kMovers / 32;

// Before a call's first step, by one thread; a barrier of the block follows.
__device__ __forceinline__ void clearPump(Pump& pump, unsigned warps = kMoverWarps) {
  pump = {};
  pump.warps = warps;
}

// Of the movers and the opener of one pump; barrier 0 is that of the whole block. Unaligned
// (bar.sync would be barrier.sync.aligned): they meet at it from different instructions, and the
// opener's lanes each when its own peer has come.
struct PumpBarrier {
  int number;
  int threads = kMovers + kOpeners;

  __device__ __forceinline__ void meet() const {
    asm volatile("barrier.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
  }
};

// By a mover's warp behind its loads and stores of a step; and by the closer, whose fences then
// cover them. Of the block's scope: fences on both sides of an atomic that the closer reads.
__device__ __forceinline__ void raiseMoved(Pump& pump) {
  __syncwarp();
  if (threadIdx.x % 32 != 0) return;
  __threadfence_block();
  atomicAdd(&pump.moved, 1U);
}
// All lanes; false when that ended without.
__device__ __forceinline__ bool awaitMoved(Pump& pump, int64_t steps) {
  const unsigned wanted = pump.warps * static_cast<unsigned>(steps);
  for (;;) {
    const bool isThere = *static_cast<volatile unsigned*>(&pump.moved) >= wanted;
    if (__all_sync(0xffffffff, isThere) != 0) break;
    const bool isOver = *static_cast<volatile bool*>(&pump.isOver);
    if (__any_sync(0xffffffff, isOver) != 0) return false;
    __nanosleep(20);
  }
  __threadfence_block();
  return true;
}

// The opener's side. `part` has prepare(step, table), which waits for what the step needs, writes
// into the table what the movers do in it and tells whether that went well. False when the
// communicator is over. A Table is in shared memory and has a field isFine.
template <typename Part, typename Table>
__device__ __forceinline__ bool open(Part& part, Table (&tables)[2], Pump& pump,
                                     PumpBarrier barrier, int64_t steps) {
  bool isFine = true;
  for (int64_t step = 0; step < steps && isFine; ++step) {
    Table& table = tables[step & 1];
    isFine = __all_sync(0xffffffff, part.prepare(step, table) ? 1 : 0) != 0;
    if (threadIdx.x % 32 == 0) {
      table.isFine = isFine;
      *static_cast<volatile unsigned*>(&pump.opened) = static_cast<unsigned>(step + 1);
      if (!isFine) *static_cast<volatile bool*>(&pump.isOver) = true;
    }
    barrier.meet();
  }
  return isFine;
}

// The closer's side: part.begin() at the beginning, complete(step) once the movers are through with
// it, and save() at the end, which writes the rings' counters for the next call: the opener, who
// read them before the first step, may be at its end before the closer has begun. False when the
// opener gave up.
template <typename Part>
__device__ __forceinline__ bool close(Part& part, Pump& pump, int64_t steps) {
  part.begin();
  for (int64_t step = 0; step < steps; ++step) {
    if (!awaitMoved(pump, step + 1)) return false;
    part.complete(step);
  }
  part.save();
  return true;
}

// The movers' side: `part(table)` does a step's work.
template <typename Part, typename Table>
__device__ __forceinline__ void move(const Part& part, const Table (&tables)[2], Pump& pump,
                                     PumpBarrier barrier, int64_t steps) {
  for (int64_t step = 0; step < steps; ++step) {
    barrier.meet();
    const Table& table = tables[step & 1];
    if (!table.isFine) return;
    part(table);
    raiseMoved(pump);
  }
}

}  // namespace tutti::kernels::cuda
