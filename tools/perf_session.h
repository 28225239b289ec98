// One rank's hold on the library under measurement: a communicator, buffers and the calls.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "tools/perf_board.h"
#include "tools/perf_formulas.h"
#include "tools/perf_gpu.h"
#include "tools/perf_library.h"
#include "tools/perf_options.h"

namespace tutti::tools {

Result<IdBytes> makeId(const Library& library);  // ncclGetUniqueId
Result<int> versionOf(const Library& library);

// Memory for guard, data, guard; page-aligned, registered as -R asks. Owned by a Session.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  // All of it, from the first guard on; on a GPU the host's copy, see Session::upload().
  std::span<std::byte> whole() const { return {base_ + shift_, bytes_ - shift_}; }
  // The first dataBytes after the guard.
  std::span<std::byte> data(size_t dataBytes) const { return whole().subspan(kGuard, dataBytes); }

  // Where the library is given it: the same, or on the GPU.
  std::byte* place() const { return (device_ == nullptr ? base_ : device_) + shift_ + kGuard; }

 private:
  friend class Session;
  static constexpr size_t kGuard = 4096;  // kGuardBytes of perf_check.h
  std::byte* base_ = nullptr;
  std::byte* device_ = nullptr;
  size_t bytes_ = 0;
  size_t shift_ = 0;  // misalignment asked for
  void* handle_ = nullptr;
  ncclWindow_t window_ = nullptr;
};

// One call's memory and parameters.
struct Invocation {
  Operation operation = Operation::kAllReduce;
  const void* send = nullptr;
  void* recv = nullptr;
  size_t count = 0;
  DataType type = DataType::kFloat32;
  ncclRedOp_t op = ncclSum;
  int root = 0;
};

// Used by one thread, the rank's own; abort() by any.
class Session {
 public:
  struct Place {
    int rank = 0;
    int rankCount = 1;
  };
  // Collective. REQUIRES: library and options outlive the session.
  static Result<std::unique_ptr<Session>> open(const Library& library, const PerfOptions& options,
                                               const Place& place, const IdBytes& id);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session();  // collective after success; aborts the communicator otherwise

  // Buffers for up to maxBytes of data each, shifted by misalignBytes. Collective with -R 2.
  Status allocate(size_t maxBytes, size_t misalignBytes);
  void release();

  // Both buffers, with their guards and the first dataBytes, between the host's copy and the GPU.
  // Nothing to do for CPU ranks.
  Status upload(size_t dataBytes);
  Status download(size_t dataBytes);

  const Buffer& sendBuffer() const { return send_; }
  const Buffer& recvBuffer() const { return recv_; }

  // Starts `repeats` equal operations as one group (alone when 1).
  Status start(const Invocation& invocation, int repeats);
  // Waits for everything started.
  Status finish();
  // On a GPU: keeps `iterations` starts as a graph, and runs it.
  Status capture(const Invocation& invocation, int repeats, int iterations);
  Status replay();
  // kUnknown: a CPU rank, or the library does not say.
  GpuPath path() const;
  // The GPU's number; -1 for a CPU rank.
  int gpu() const { return gpu_ == nullptr ? -1 : gpu_->number(); }
  // The library's number for an operator; makes one for kPreMulSum with this rank's scalar.
  Result<ncclRedOp_t> openOp(ReduceOp op, DataType type, int scalar);
  Status closeOp(ReduceOp op, ncclRedOp_t number);

  // Every rank's bytes (as many each), by rank, through the library itself: for ranks that share
  // no memory.
  Result<std::vector<std::byte>> gather(std::span<const std::byte> mine);
  // Orderly end of the communicator; the destructor aborts it where this was not called.
  Status close();

 private:
  Session(const Library& library, const PerfOptions& options, const Place& place)
      : library_(library), options_(options), place_(place) {}
  Status openGpu();
  Status allocateOne(Buffer& buffer, size_t bytes);
  Result<std::byte*> allocateHost(size_t bytes);
  Status registerBuffer(Buffer& buffer, void* memory);
  void releaseOne(Buffer& buffer);
  Result<std::vector<std::byte>> gatherOnGpu(std::span<const std::byte> mine);
  ncclResult_t call(const Invocation& invocation);
  ncclResult_t callSendRecv(const Invocation& invocation);

  const Library& library_;
  const PerfOptions& options_;
  Place place_;
  ncclComm_t comm_ = nullptr;
  std::unique_ptr<RankGpu> gpu_;  // null: a CPU rank
  cudaStream_t stream_ = nullptr;
  Buffer send_;
  Buffer recv_;
};

}  // namespace tutti::tools
