// What calls on a real communicator would take, from what all its ranks know: for
// ncclGroupSimulateEnd. On GPUs by the prices of time_constants.h, on CPU ranks by those that
// choose the algorithm (plan/cost_model.h). Pure, any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "graph/nccl_constants.h"
#include "plan/plan.h"

namespace tutti::sim {

struct EstimatedRanks {
  const plan::Agreement& agreement;
  bool areGpus = false;
};

// One way of GPU ranks to make a call, launch not included; by the prices of its like where it was
// not measured.
struct GpuWay {
  int32_t rankCount = 2;
  std::string_view algorithm{};  // of the catalogue
  graph::Protocol protocol = graph::Protocol::kSimple;
};
double gpuCallUs(const GpuWay& way, const plan::CallShape& shape);

// Microseconds from call to end, launch included. kInvalidUsage where NCCL_ALGO leaves no
// algorithm.
Result<double> estimateCallUs(const EstimatedRanks& ranks, const plan::CallShape& shape);

}  // namespace tutti::sim
