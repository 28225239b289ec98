// From the calls of a group to kernel launches: which calls share one, in what order. Pure.
//
// Collectives run in call order, neighbours that need the same kernel in one launch, short ones
// side by side. Then the point-to-point calls: the k-th send and receive of each pair of ranks in
// the k-th launch, so that any order of sends and receives inside a group completes.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "base/status.h"
#include "kernels/gpu_catalog.h"
#include "launch/call.h"
#include "launch/gpu_chooser.h"
#include "wire/gpu_work.h"

namespace tutti::launch {

// Where one launch of a batch goes: exactly one of the two is set.
struct GpuBatch {
  const wire::GpuLaunch* collectives = nullptr;
  const wire::GpuTransfers* transfers = nullptr;
  kernels::cuda::GpuChoice choice{};  // kernel and image
  int32_t blocks = 0;
};

class GpuBatcher {
 public:
  using Limits = GpuLimits;  // equal for all calls of a communicator
  GpuBatcher(const wire::GpuView& view, const Limits& limits);

  // Hands each launch to `emit`, in order. The batch is valid during the call. `number` of a
  // collective goes into its signature: pass the sequence number of the first.
  using Emit = std::function<Status(const GpuBatch&)>;
  // Fills `reach` for a buffer that all peers have mapped. Asked for calls that can gain from it.
  using Find = std::function<bool(const void* buffer, size_t bytes, wire::GpuReach& reach)>;
  Status build(std::span<const StreamCall> calls, const Find& find, const Emit& emit);

 private:
  Status addCollective(const Call& call, const Emit& emit);
  bool findReach(const Call& call, wire::GpuReach& reach) const;
  Status flush(const Emit& emit);
  Result<bool> transferRound(std::span<const StreamCall> calls, int32_t round, const Emit& emit);
  Status emitTransfers(const Emit& emit, kernels::cuda::GpuChoice choice);
  Status addParts(const Call& call, const kernels::cuda::GpuRequest& request, const Emit& emit);
  void addTransfer(const Call& call, const std::byte* source);
  void addPart(const Call& call, const kernels::cuda::TransferPart& part);
  const Limits limits_;
  GpuChooser chooser_;
  const Find* find_ = nullptr;  // during build()
  wire::GpuLaunch launch_{};
  wire::GpuTransfers transfers_{};
  kernels::cuda::GpuChoice choice_{};  // of the calls in launch_
  int32_t blocks_ = 0;
  int32_t nextBlock_ = 0;  // of launch_, where the next call may go
};

}  // namespace tutti::launch
