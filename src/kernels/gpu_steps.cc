// The executor's steps where the buffers are a GPU's: the GPU folds, the host says when and tells
// the links.
#include "kernels/execution.h"

namespace tutti::kernels {

// Begun once, asked until it is done. The messages stay in their slots meanwhile.
Result<Execution::Attempt> Execution::runOnGpu(const BoundStep& step, StepData& data) {
  StepScratch& scratch = *binding_.scratch;
  if (!isOnGpu_) {
    TUTTI_TRY(takeSources(step, data));
    placeDestinations(step, data);
    const bool isThere =
        step.isCopy && data.localCount == 1 && scratch.destinations[0] == scratch.sources[0];
    if (data.localCount > 0 && !isThere) {
      TUTTI_TRY_ASSIGN(ticket_, binding_.gpu->start(
                                    binding_.program->fold(),
                                    {.sources = {scratch.sources.data(), step.sourceCount},
                                     .destinations = {scratch.destinations.data(), data.localCount},
                                     .elementCount = data.elements,
                                     .scaledSource = step.scaledSource,
                                     .post = step.post}));
      isOnGpu_ = true;
    }
  }
  if (isOnGpu_) {
    TUTTI_TRY_ASSIGN(const bool isDone, binding_.gpu->isDone(ticket_));
    if (!isDone) {
      blockage_ = {.what = For::kGpu};
      return Attempt::kBlocked;
    }
    isOnGpu_ = false;
  }
  publish(step, data);
  return Attempt::kDone;
}

}  // namespace tutti::kernels
