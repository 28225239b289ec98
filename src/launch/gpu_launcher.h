// GpuLauncher: puts the calls of one communicator as kernels on the user's streams, in the
// communicator's order, and looks after them.
//
// A launch allocates nothing and waits for nothing. The kernels of one communicator never overlap:
// they share the segments (stream_order.h). Ranks that share a GPU launch on a stream of the
// launcher's own, which waits for the user's and is waited for.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "bootstrap/peer_info.h"
#include "channel/peer_buffers.h"
#include "channel/peer_segments.h"
#include "device/accelerator.h"
#include "launch/block_accord.h"
#include "launch/copy_engines.h"
#include "launch/gpu_batch.h"
#include "launch/gpu_profile.h"
#include "launch/gpu_room.h"
#include "launch/gpu_waits.h"
#include "launch/gpu_watcher.h"
#include "launch/runner.h"
#include "launch/stream_order.h"
#include "launch/watch.h"
#include "observe/recorder.h"

namespace tutti::launch {

class GpuLauncher final : public StreamRunner, public GpuWatcher::Watched {
 public:
  struct Options {
    GpuBatcher::Limits limits;
    Nanoseconds timeout{};         // TUTTI_TIMEOUT_MS
    Nanoseconds waitLimit{};       // TUTTI_GPU_WAIT_MS; 0: kernels wait until the watcher ends them
    bool checksPointers = false;   // NCCL_CHECK_POINTERS
    bool registersGraphs = false;  // NCCL_GRAPH_REGISTER
    bool mixesGraphs = true;       // StreamOrder's
  };
  struct Parts {
    device::Accelerator& accelerator;
    GpuWatcher& watcher;
    GpuRoom& room;  // of the accelerator
    const std::vector<bootstrap::PeerInfo>& peers;
    Clock& clock;
    std::unique_ptr<channel::PeerSegments> segments;
    std::unique_ptr<channel::PeerBuffers> buffers;
    std::unique_ptr<observe::Recorder> recorder;
    Options options;
    observe::Profiler* profiler = nullptr;  // null: nobody asked; else `teller` is there, too
    GpuWatcher* teller = nullptr;           // GpuProfile::Parts
  };
  static Result<std::unique_ptr<GpuLauncher>> open(Parts parts);
  // REQUIRES: idle, and no graph that holds its calls is replayed any more, unless fail() was
  // called: then such a replay does nothing.
  ~GpuLauncher() override;

  Status launch(std::span<const StreamCall> calls, bool isUsersGroup) override;

  bool isIdle() override;
  bool isSettled() override { return true; }
  bool waitIdle(Nanoseconds bound, Clock& clock) override;
  Status failure() const override;
  bool hasFailed() const override { return hasFailed_.load(std::memory_order_acquire); }
  Status verdict() const override { return watch_.verdict(); }
  std::string lastCall() const override { return watch_.lastCall(); }
  Status compareCalls() override { return watch_.compareCalls(); }
  void fail(const Status& status) override;
  void retire(observe::Life how) override { parts_.recorder->setLife(how); }
  bool isDead(int32_t rank) const override { return launch::isDead(*parts_.recorder, rank); }

  // Ends every wait of this rank's kernels. Does not wait itself.
  void abort();

  // A buffer that peers may write to from now on, or no longer (channel::PeerBuffers).
  Status addBuffer(const void* handle, const void* memory, size_t bytes,
                   channel::PeerBuffers::Kind kind = channel::PeerBuffers::Kind::kBuffer);
  void removeBuffer(const void* handle);
  // Waits until the peers have what was added, for as long as peers that do the same now need.
  void settleBuffers();

  Nanoseconds look() override;

 private:
  // What host and kernels of this rank share, in pinned memory; a cache line each.
  struct Words {
    // Raised by the host (relaxed: nothing else is published with it), polled by kernels over the
    // bus, so rarely. Never lowered.
    alignas(64) std::atomic<uint32_t> abort;
    // Written once by a kernel, `fault` last after a system-wide fence; read with acquire.
    alignas(64) wire::GpuError error;
    // Written by kernels, one at a time: wire::GpuView::starts.
    alignas(64) std::atomic<uint64_t> starts;
  };
  // A launch whose end is still to come.
  struct Pending {
    uint64_t launch = 0;  // as counted by launched_; 0: none
    uint64_t entry = 0;   // the recorder's number of its last call
  };

  explicit GpuLauncher(Parts parts)
      : parts_(std::move(parts)),
        order_(parts_.accelerator, parts_.options.mixesGraphs),
        engines_(parts_.accelerator),
        watch_({.recorder = *parts_.recorder,
                .clock = parts_.clock,
                .timeout = parts_.options.timeout}),
        accord_(parts_.recorder->board(), parts_.recorder->rank()) {}
  Status initialise();
  void openProfile();
  Status loadKernels();
  Status tryKernel(const device::Kernel& kernel);
  Status awaitTail(Nanoseconds bound);
  Words& words() { return *static_cast<Words*>(words_->hostAddress()); }
  Status launchNow(std::span<const StreamCall> calls);
  Status emit(const GpuBatch& batch, void* stream, const device::Capture& capture);
  Status enterRoom(GpuRoom::Launch own, device::KernelLaunch& launch, void* stream,
                   const device::Capture& capture);
  void settleInRoom(const device::Capture& capture);
  void pollBuffers();
  bool findBuffer(const void* buffer, size_t bytes, const device::Capture& capture,
                  wire::GpuReach& reach);
  struct Known;
  Result<Known*> kernelFor(const kernels::cuda::GpuChoice& choice);
  Result<uint32_t> blocksPerMultiprocessor(Known& known, const device::KernelLaunch& launch);
  void record(std::span<const StreamCall> calls, const device::Capture& capture);
  Status noteEnd(void* stream, const device::Capture& capture);
  void giveUp(const Status& status, void* stream, const device::Capture& capture);

  Status faultOfKernels();
  Pending findPending();
  void finishUpTo(const Pending& done);
  Status judgeToldFaults(uint64_t entry);
  Status judgeHeldUp(const std::vector<observe::RankView>& ranks);
  Status judgeAbandoned(const std::vector<observe::RankView>& ranks);
  Status judge(const Pending& pending);
  Status judgeWaits(const std::vector<observe::RankView>& ranks, uint64_t entry, Nanoseconds idle);
  Result<bool> judgeReplays(uint64_t newest);
  DeathTest deathTest() const;

  Parts parts_;
  StreamOrder order_;  // guarded by mutex_, as the next
  CopyEngines engines_;
  Watch watch_;                          // the watcher's thread only
  std::unique_ptr<GpuProfile> profile_;  // constant once open; null: nobody is told
  std::unique_ptr<device::SharedWords> words_;
  // Kernels found so far, by image and then in the order of first use.
  struct Known {
    const char* name = nullptr;
    const device::Kernel* kernel = nullptr;
    uint32_t perMultiprocessor = 0;  // blocks that one holds; 0: not asked yet
    uint32_t threads = 0;            // of the launch for which that was asked, as the next
    uint32_t sharedBytes = 0;
  };
  std::array<std::array<Known, std::tuple_size_v<kernels::cuda::KernelNames>>,
             kernels::cuda::kImageCount>
      kernels_{};

  mutable std::mutex mutex_;  // guards the fields down to the blank line, and kernels_
  std::unique_ptr<GpuBatcher> batcher_;
  BlockAccord accord_;
  void* ownStream_ = nullptr;       // where ranks share a GPU
  device::Event* probe_ = nullptr;  // after a launch now and then: how far the device has come
  uint64_t launched_ = 0;           // outside of captures
  uint64_t finished_ = 0;
  Pending last_;        // the order's tail's
  Pending probed_;      // probe_'s
  uint64_t ended_ = 0;  // recorder entries marked as done
  uint64_t collectiveSequence_ = 0;
  // None where ranks share the GPU: nothing tells which of its communicators are one rank's.
  std::unique_ptr<GpuRoom::Guest> guest_;
  GpuRoom::Launch lastEntered_;
  GpuRoom::Tails roomTails_;   // that a launch has to wait for
  GpuRoom::Tails roomOrders_;  // and in whose order it has to be
  bool hasPolled_ = false;     // for buffers, in the launch at hand
  bool hasStrays_ = false;     // on a stream, and nothing tells when they end

  mutable std::mutex failureMutex_;  // guards failure_; may be taken under mutex_
  Status failure_;
  std::atomic<bool> hasFailed_{false};  // mirrors failure_, release after it is set

  // The watcher's thread only.
  uint64_t seenLaunch_ = 0;
  Instant seenSince_{};
  uint64_t heldEntry_ = 0;  // newest call while mutex_ is not to be had; 0: it was
  Instant heldSince_{};
};

}  // namespace tutti::launch
