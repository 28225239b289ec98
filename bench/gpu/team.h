// Ranks as threads of one process, on one GPU or several: what the kernels need of a host, and no
// more. The library's own host side is src/device/cuda and src/launch; this stands beside it so
// that kernels can be tested and tuned alone.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gpu.h"
#include "kernels/cuda/catalog.h"
#include "wire/gpu_work.h"

namespace tutti::bench {

struct TeamOptions {
  int ranks = 2;
  int gpus = 1;
  uint64_t timeoutMs = 3000;
  int maxBlocks = wire::kGpuMaxBlocks;
  int lanes = 0;  // of calls whose parts are apart, at most; 0: the catalog's
  int64_t lineBytes = -1;
  int64_t stageBytes = -1;
  int64_t wideBytes = -1;      // up to here by wide lines; -1: the catalog's
  int64_t transferBytes = -1;  // 2 ranks: from here on as transfers; -1: the catalog's
  bool startsEarly = true;
  bool movesByBulk = true;     // where a call may
  uint32_t chunkBytes = 0;     // of slots, at most; 0: the catalog's
  bool sharesBuffers = false;  // as if all had registered theirs
  std::string images;          // a folder with images to use instead of those built in
};

struct Job {  // one collective, as the API gives it
  Collective collective;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  uint64_t count = 0;
  int root = 0;
  const void* input = nullptr;
  void* output = nullptr;
  uint64_t scalar = 0;
};

class Member;

class Team {
 public:
  explicit Team(const TeamOptions& options);
  ~Team();

  const TeamOptions& options() const { return options_; }
  int ranks() const { return options_.ranks; }
  int32_t multiprocessors() const { return multiprocessors_; }  // the fewest of a GPU
  // Runs the body on all ranks' threads at once, with their contexts current.
  void run(const std::function<void(Member&)>& body);
  Member& member(int rank) { return *members_[static_cast<size_t>(rank)]; }
  void meet() { barrier_.arrive_and_wait(); }
  // All segments anew, as a new communicator would have them.
  void reset();

 private:
  const TeamOptions options_;
  std::barrier<> barrier_;
  int32_t multiprocessors_ = std::numeric_limits<int32_t>::max();
  std::vector<std::unique_ptr<Member>> members_;
};

// One rank.
class Member {
 public:
  Member(Team& team, int rank);
  ~Member();

  Team& team() { return team_; }
  int rank() const { return rank_; }
  CUstream stream() const { return stream_; }
  CUcontext context() const { return context_; }
  CUdeviceptr segment() const { return segment_->address(); }
  wire::GpuView& view() { return view_; }
  volatile uint32_t& abortWord() { return hostWords_->abort; }
  const volatile wire::GpuError& error() const { return hostWords_->error; }

  void makeCurrent() { TUTTI_CU(cuCtxSetCurrent(context_)); }
  void connect();
  void clear();
  kernels::cuda::GpuRequest request(const Job& job) const;
  // Collectives that take the same kernel go into one launch.
  void launch(std::span<const Job> jobs);
  void launch(const Job& job) { launch(std::span(&job, 1)); }
  void launch(const kernels::cuda::GpuChoice& choice, std::span<const wire::GpuCall> calls,
              bool isBulk);
  struct Transfer {
    bool isSend;
    int peer;
    void* buffer;
    uint64_t bytes;
  };
  void transfer(std::span<const Transfer> transfers);
  void synchronize() { TUTTI_CU(cuStreamSynchronize(stream_)); }
  // Everything that will be launched, before any peer spins.
  void loadAll();
  // Where ranks share a GPU, the first kernel of a stream may wait for those of others.
  void warmUp();

 private:
  CUfunction function(int image, const char* name);
  std::optional<kernels::cuda::GpuChoice> sharingChoice(const Job& job) const;
  kernels::cuda::GpuChoice choose(const Job& job) const;
  void launch(const kernels::cuda::GpuChoice& choice, const kernels::cuda::GpuGrid& grid,
              void* argument);
  void launchParts(const Job& job);
  bool goesAsTransfers(const Job& job) const;

  struct HostWords {
    uint32_t abort;
    alignas(64) wire::GpuError error;
    alignas(64) uint64_t starts;
  };

  Team& team_;
  const int rank_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  HostWords* hostWords_ = nullptr;
  std::unique_ptr<DeviceBuffer> segment_;
  wire::GpuView view_{};
  struct Loaded {
    CUmodule module = nullptr;
    std::array<CUfunction, std::tuple_size_v<kernels::cuda::KernelNames>> functions{};
    kernels::cuda::KernelNames names{};
  };
  std::array<Loaded, kernels::cuda::kProgramImages> loaded_{};
};

uint32_t signatureOf(const Job& job);

}  // namespace tutti::bench
