// The GPU of one rank of a measurement, through the CUDA driver alone (by dlopen): so the command
// runs, and measures CPU ranks, where there is none.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "base/status.h"

namespace tutti::tools {

// Used by one thread, the rank's own: its context is that thread's current one from open() on.
class RankGpu {
 public:
  // GPU `rank` modulo `gpuCount`, or modulo all there are when that is 0. kSystemError when there
  // is no driver or no GPU.
  static Result<std::unique_ptr<RankGpu>> open(int rank, int gpuCount);
  ~RankGpu();
  RankGpu(const RankGpu&) = delete;
  RankGpu& operator=(const RankGpu&) = delete;

  int number() const { return number_; }
  // For a thread that holds several: whose context the calls that follow are made in.
  Status makeCurrent();
  void* stream() const { return stream_; }

  Result<void*> allocate(size_t bytes);
  void free(void* memory);
  // Between any two of host and device memory; returns when it is done.
  Status copy(void* to, const void* from, size_t bytes);
  Status synchronize();
  // Whether memory that the library gave is of a GPU: whether its ranks run there.
  bool isDeviceMemory(const void* memory);

  // What `work` puts on the stream becomes a graph instead of running; replaces the one before. It
  // is uploaded: a first launch that has to do so may wait for a kernel of another rank that shares
  // the GPU, and waits for this one.
  Status capture(const std::function<Status()>& work);
  Status replay();
  // The graph goes. REQUIRES: no replay of it runs.
  void dropGraph();

 private:
  struct Driver;
  RankGpu() = default;
  Status initialise(int rank, int gpuCount);
  Status check(int result, const char* call) const;

  std::shared_ptr<const Driver> driver_;  // shared by the ranks of the process
  int number_ = 0;
  void* context_ = nullptr;
  void* stream_ = nullptr;
  void* graph_ = nullptr;  // executable
};

}  // namespace tutti::tools
