// What calls on a real communicator would take, from what all its ranks know: for
// ncclGroupSimulateEnd. On GPUs by the prices of time_constants.h, on CPU ranks by those that
// choose the algorithm (plan/cost_model.h). Pure, any thread.
#pragma once

#include "base/status.h"
#include "plan/plan.h"

namespace tutti::sim {

struct EstimatedRanks {
  const plan::Agreement& agreement;
  bool areGpus = false;
};

// Microseconds from call to end, launch included. kInvalidUsage where NCCL_ALGO leaves no
// algorithm.
Result<double> estimateCallUs(const EstimatedRanks& ranks, const plan::CallShape& shape);

}  // namespace tutti::sim
