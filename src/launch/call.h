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

}  // namespace tutti::launch
