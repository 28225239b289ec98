// Sizes and bandwidths of a measured operation, as nccl-tests defines them, so that figures can be
// compared. Pure.
#pragma once

#include <cstddef>

#include "tools/perf_options.h"

namespace tutti::tools {

// How one rank calls an operation. Counts and offsets in elements. In place, send and receive
// share one buffer of bufferCount elements, at the two offsets.
struct Shape {
  size_t paramCount = 0;  // the count given to the call
  size_t sendCount = 0;   // elements this rank may read
  size_t recvCount = 0;   // elements this rank may have written
  size_t sendOffset = 0;
  size_t recvOffset = 0;
  size_t bufferCount = 0;  // of the larger side: the size that is printed
};

// The whole vector has `bytes` bytes, rounded down to what all ranks can share evenly.
Shape shapeOf(Operation operation, size_t bytes, size_t elementBytes, int rankCount, int rank);

struct Bandwidth {
  double algorithm = 0;  // GB/s (10^9): bytes of the whole vector over time
  double bus = 0;        // GB/s that the slowest link carried, whatever the rank count
};

// seconds > 0, for one operation.
Bandwidth bandwidthOf(Operation operation, size_t bytes, int rankCount, double seconds);

}  // namespace tutti::tools
