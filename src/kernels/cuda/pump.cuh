// How a part of a block moves messages: kMovers threads that load and store, and one warp beside
// them, the keeper, that waits for peers and tells them. Lane p of the keeper keeps the rings with
// rank p.
//
// While the movers are at one step, the keeper waits for what the next one needs; while they are at
// the next, it fences and tells peers of the last. So neither the fence (a trip to the peers,
// behind all that is under way) nor the polls stand in the movers' way, and a step costs one
// barrier.
#pragma once

#include "kernels/cuda/rings.cuh"

namespace tutti::kernels::cuda {

inline constexpr int kMovers = 224;
inline constexpr int kKeepers = 32;
inline constexpr int kPumpThreads = kMovers + kKeepers;

// Of the threads of one pump only; barrier 0 is that of the whole block. Unaligned (bar.sync would
// be barrier.sync.aligned): keeper and movers meet at it from different instructions, and a
// keeper's lanes each when its own peer has come.
__device__ __forceinline__ void pumpBarrier(int number) {
  asm volatile("barrier.sync %0, %1;" ::"r"(number), "n"(kPumpThreads) : "memory");
}

// The keeper's side. `part` has prepare(step, table), which waits, writes into the table what the
// movers do in that step and tells whether that went well; and complete(step). False when the
// communicator is over. A Table is in shared memory and has a field isFine.
template <typename Part, typename Table>
__device__ __forceinline__ bool keep(Part& part, Table (&tables)[2], int barrier, int64_t steps) {
  const auto prepare = [&](int64_t step) {
    Table& table = tables[step & 1];
    const bool isFine = __all_sync(0xffffffff, part.prepare(step, table) ? 1 : 0) != 0;
    if (threadIdx.x % kKeepers == 0) table.isFine = isFine;
    return isFine;
  };
  if (steps <= 0) return true;
  bool isFine = prepare(0);
  pumpBarrier(barrier);
  for (int64_t step = 0; step < steps && isFine; ++step) {
    const bool isNextFine = step + 1 == steps || prepare(step + 1);
    pumpBarrier(barrier);
    part.complete(step);
    isFine = isNextFine;
  }
  return isFine;
}

// The movers' side: `part(table)` does a step's work.
template <typename Part, typename Table>
__device__ __forceinline__ void move(const Part& part, const Table (&tables)[2], int barrier,
                                     int64_t steps) {
  if (steps <= 0) return;
  pumpBarrier(barrier);
  for (int64_t step = 0; step < steps; ++step) {
    const Table& table = tables[step & 1];
    if (!table.isFine) return;
    part(table);
    pumpBarrier(barrier);
  }
}

}  // namespace tutti::kernels::cuda
