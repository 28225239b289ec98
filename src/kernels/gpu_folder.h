// Folds in a GPU's memory on the order of the host's executor, one after the other.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "kernels/kernels.h"

namespace tutti::kernels {

// One thread at a time.
class GpuFolder {
 public:
  using Ticket = uint32_t;

  // Starts fold(spec, args), or the copy that it comes to; does not wait. Sources and destinations
  // are memory of the GPU or of the host, and stay as they are until it is done; `args` itself need
  // not. kInvalidUsage for a source that is scaled, and for more operands than wire::GpuFold holds.
  virtual Result<Ticket> start(const FoldSpec& spec, const FoldArgs& args) = 0;
  // All that was started up to this one. An error: the GPU, or its driver, has failed.
  virtual Result<bool> isDone(Ticket ticket) = 0;

 protected:
  ~GpuFolder() = default;
};

}  // namespace tutti::kernels
