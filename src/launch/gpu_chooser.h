// Which kernel a call is to have, as far as users have a say: NCCL_ALGO, NCCL_PROTO, thread blocks
// and a tuner plug-in turn the request by which kernels::cuda::choose() chooses. With none of them
// it is the usual one. Algorithms and rank counts that have no kernel of their own go as programs
// (kernels/gpu_program.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "graph/name_filter.h"
#include "kernels/gpu_catalog.h"
#include "kernels/gpu_program.h"
#include "plan/plan.h"

namespace tutti::launch {

// The same on all ranks: kernels of different shapes would wait for each other.
struct GpuLimits {
  int32_t rankCount = 1;
  int32_t ranksPerDevice = 1;
  int32_t multiprocessors = kernels::cuda::GpuRequest{}.multiprocessors;
  int32_t maxBlocks = wire::kGpuMaxBlocks;
  int32_t minBlocks = 1;
  bool prefersEngines = false;  // CTA policy zero
  bool savesBlocks = false;     // CTA policy efficiency
  bool adaptsBlocks = false;    // saves them while other kernels have the GPU (block_accord.h)
  bool hasPrograms = false;     // needsPrograms(): their rings are in the segments
  bool keepsLines = false;      // kernels::cuda::GpuRequest's, as the next
  bool hasBulk = false;
  std::string algorithms{};  // NCCL_ALGO, NCCL_PROTO; what leaves no kernel is ignored
  std::string protocols{};
  std::shared_ptr<plan::Tuner> tuner{};  // shared by all that choose; null: none
};

// Whether some call goes as a program: there are more ranks than kernels know, or NCCL_ALGO names
// for a collective only what has no kernel.
bool needsPrograms(const GpuLimits& limits);

// NCCL's name for how a kernel moves bytes: with a flag in each store, in each line, or by slots.
graph::Protocol protocolOf(const kernels::cuda::GpuChoice& choice);

// One thread.
class GpuChooser {
 public:
  explicit GpuChooser(const GpuLimits& limits);
  // Nobody has a say, and kernels know as many ranks.
  bool isFree() const { return isFree_; }
  // In calls from now on, as if the limits said so. REQUIRES: isFree().
  void saveBlocks(bool saves) { limits_.savesBlocks = saves; }

  struct Decision {
    kernels::cuda::GpuRequest request{};
    std::optional<kernels::cuda::GpuProgramWay> program{};  // as which the call goes
  };
  // A shape is thought about once, where there is something to think about.
  Decision decisionFor(const plan::CallShape& shape);
  kernels::cuda::GpuRequest requestFor(const plan::CallShape& shape) {
    return decisionFor(shape).request;
  }

 private:
  friend bool needsPrograms(const GpuLimits& limits);
  // How the call could go.
  struct Way {
    Decision decision{};
    plan::AlgorithmCost cost{};
  };
  kernels::cuda::GpuRequest usualRequest(const plan::CallShape& shape) const;
  Decision decide(const plan::CallShape& shape) const;
  std::vector<Way> waysFor(const plan::CallShape& shape) const;
  std::vector<Way> kernelWays(const plan::CallShape& shape) const;
  std::vector<Way> programWays(const plan::CallShape& shape) const;
  bool isAllowed(const plan::CallShape& shape, const Way& way) const {
    return algorithms_.allows(shape.collective, way.cost.algorithm);
  }
  double predictUs(const plan::CallShape& shape, const kernels::cuda::GpuChoice& choice) const;

  using Key = std::tuple<Collective, DataType, ReduceOp, uint64_t>;

  GpuLimits limits_;
  graph::NameFilter algorithms_;
  graph::NameFilter protocols_;
  bool isFree_;
  kernels::cuda::GpuRequest transfers_;  // lengths of sends and receives, as protocols_ allow
  std::map<Key, Decision> decided_;
};

}  // namespace tutti::launch
