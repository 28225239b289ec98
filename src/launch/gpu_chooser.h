// Which kernel a call is to have, as far as users have a say: NCCL_ALGO, NCCL_PROTO, thread blocks
// and a tuner plug-in turn the request by which kernels::cuda::choose() chooses. With none of them
// it is the usual one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "graph/name_filter.h"
#include "kernels/gpu_catalog.h"
#include "plan/plan.h"

namespace tutti::launch {

// The same on all ranks: kernels of different shapes would wait for each other.
struct GpuLimits {
  int32_t rankCount = 1;
  int32_t ranksPerDevice = 1;
  int32_t maxBlocks = wire::kGpuMaxBlocks;
  bool prefersEngines = false;  // CTA policy zero
  std::string algorithms{};     // NCCL_ALGO, NCCL_PROTO; what leaves no kernel is ignored
  std::string protocols{};
  std::shared_ptr<plan::Tuner> tuner{};  // shared by all that choose; null: none
};

// NCCL's name for how a kernel moves bytes: with a flag in each store, in each line, or by slots.
graph::Protocol protocolOf(const kernels::cuda::GpuChoice& choice);

// One thread.
class GpuChooser {
 public:
  explicit GpuChooser(const GpuLimits& limits);

  // A shape is thought about once, where there is something to think about.
  kernels::cuda::GpuRequest requestFor(const plan::CallShape& shape);

 private:
  // A kernel that could take the call.
  struct Way {
    kernels::cuda::GpuRequest request{};
    plan::AlgorithmCost cost{};
  };
  kernels::cuda::GpuRequest usualRequest(const plan::CallShape& shape) const;
  kernels::cuda::GpuRequest decide(const plan::CallShape& shape) const;
  std::vector<Way> waysFor(const plan::CallShape& shape) const;
  double predictUs(const plan::CallShape& shape, const kernels::cuda::GpuChoice& choice) const;

  using Key = std::tuple<Collective, DataType, ReduceOp, uint64_t>;

  GpuLimits limits_;
  graph::NameFilter algorithms_;
  graph::NameFilter protocols_;
  bool isFree_;  // nobody has a say
  std::map<Key, kernels::cuda::GpuRequest> decided_;
};

}  // namespace tutti::launch
