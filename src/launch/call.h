// One API call, checked, on its way to whatever runs it.
#pragma once

#include "kernels/kernels.h"
#include "plan/plan.h"

namespace tutti::launch {

// Buffers are borrowed until the operation is complete.
struct Call {
  plan::CallShape shape;
  const void* input = nullptr;
  void* output = nullptr;
  kernels::Scalar preScale{};             // kPreMulSum: the rank's scalar, unless it is given by
  const void* preScaleAddress = nullptr;  // this address, read when the operation starts
};

inline bool isPointToPoint(const Call& call) { return isPointToPoint(call.shape.collective); }
// Of one block.
inline uint64_t bytesOf(const Call& call) { return call.shape.count * sizeOf(call.shape.type); }

// A call on a stream of a GPU; the handle is the user's.
struct StreamCall {
  const Call* call = nullptr;
  void* stream = nullptr;
};

}  // namespace tutti::launch
